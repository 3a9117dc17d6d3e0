"""Lint rules for the files of accelerate."""
