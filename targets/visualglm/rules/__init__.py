"""What is wrong with files of visualglm."""
