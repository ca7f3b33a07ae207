"""Dumps of this process: when they are written, what is in them, what torch writes by itself."""
