"""The time account: seconds of a training step, each with its name."""
