"""What is wrong with files of ms-swift."""
