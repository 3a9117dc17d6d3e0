"""Queries the real consumer programs, in isolated environments, about how they read a file."""
