"""Rules about the optimizer."""
