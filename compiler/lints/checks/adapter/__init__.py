"""Rules about LoRA: its targets, the modules that are trained beside it, and its scaling."""
