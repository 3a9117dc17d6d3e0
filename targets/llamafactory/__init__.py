"""LLaMA-Factory's YAML and JSON: read and checked, never written."""
