"""Rules about what moves the parameters."""
