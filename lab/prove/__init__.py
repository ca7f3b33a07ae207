"""Every small program with every single deviation: does any verdict say what is not so?"""
