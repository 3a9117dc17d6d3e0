"""What is wrong with files of simpletuner."""
