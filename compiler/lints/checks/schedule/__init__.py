"""Rules about the length of training and the learning rate schedule."""
