"""The llama-cookbook target: `python -m llama_cookbook.finetuning`, in one process."""
