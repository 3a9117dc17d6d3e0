"""Launchers, their commands, flags and variables."""
