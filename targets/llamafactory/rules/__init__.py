"""What is wrong with files of llamafactory."""
