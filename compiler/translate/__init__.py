"""Translates existing configs to another target: they are read, then emitted."""
