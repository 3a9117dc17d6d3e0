"""Hugging Face: TrainingArguments, LoraConfig, TRL's ModelConfig, and all in one for `trl sft`."""
