"""Rules about the training of diffusion models."""
