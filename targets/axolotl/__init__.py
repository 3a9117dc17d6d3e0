"""Axolotl's YAML: read and checked, never written."""
