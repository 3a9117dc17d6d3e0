"""Asking the real consumer programs, in environments of their own, what they make of a file."""
