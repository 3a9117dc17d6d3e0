"""Rules about what the compute capability of a device allows."""
