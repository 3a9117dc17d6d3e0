"""What is wrong with files of trl."""
