"""What is wrong with files of unsloth."""
