"""alpaca-lora's finetune.py, and the scripts that were made of it."""
