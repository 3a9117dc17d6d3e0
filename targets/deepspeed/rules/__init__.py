"""Lint rules for the files of DeepSpeed."""
