"""Runs within musubi-tuner's own environment."""
