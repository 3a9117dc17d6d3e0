"""What is wrong with files of deepspeed."""
