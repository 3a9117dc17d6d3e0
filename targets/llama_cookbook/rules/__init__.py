"""What is wrong with files of llama_cookbook."""
