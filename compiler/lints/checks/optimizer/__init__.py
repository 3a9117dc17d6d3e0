"""Rules about the optimizer, its learning rate schedule, and the length of training."""
