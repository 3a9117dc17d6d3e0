"""Training data: records of files, their tokens, and how a run batches them."""
