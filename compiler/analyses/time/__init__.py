"""The time account: the seconds of a training step, by name."""
