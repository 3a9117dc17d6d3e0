"""Lint rules for the files of GLM-4's scripts."""
