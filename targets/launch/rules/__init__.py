"""What is wrong with files of launch."""
