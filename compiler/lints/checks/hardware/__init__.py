"""Rules about what devices can compute and hold."""
