"""Training data as they are: records of files, their tokens, and what a run makes of them."""
