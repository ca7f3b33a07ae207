"""Formats that services of continuous integration read: a verdict at its line of the change."""
