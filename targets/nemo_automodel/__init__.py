"""NeMo AutoModel: the YAML of its recipe for finetuning text models."""
