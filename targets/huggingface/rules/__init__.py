"""Lint rules for the files of Hugging Face's libraries."""
