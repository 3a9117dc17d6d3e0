"""What is wrong with files of accelerate."""
