"""Rules about LoRA: what it is put on, what is trained beside it, how it is scaled."""
