"""Rules about what only LLaMA-Factory's YAML can get wrong."""
