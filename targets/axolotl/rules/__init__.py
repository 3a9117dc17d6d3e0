"""Lint rules for the files of Axolotl."""
