"""What is wrong with files of glm4."""
