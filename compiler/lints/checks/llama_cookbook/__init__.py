"""The flags of llama-cookbook's finetuning module, which was llama-recipes before."""
