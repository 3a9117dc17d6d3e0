"""Rules about the YAML of NeMo AutoModel's recipe."""
