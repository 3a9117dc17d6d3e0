"""What is wrong with files of huggingface."""
