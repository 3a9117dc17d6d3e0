"""Existing configs in the words of another target: read, then emit."""
