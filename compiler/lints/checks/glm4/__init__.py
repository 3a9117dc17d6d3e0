"""The configuration file of GLM-4's fine-tuning scripts."""
