"""Formats of files that show the time and memory of a run: a reader for each, and their table."""
