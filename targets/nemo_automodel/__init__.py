"""NeMo AutoModel's YAML: what its recipe for finetuning text models reads."""
