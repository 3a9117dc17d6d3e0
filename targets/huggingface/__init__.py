"""Hugging Face: TrainingArguments, LoraConfig, TRL's ModelConfig, and one file for `trl sft`."""
