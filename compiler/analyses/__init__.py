"""Calculations that make no decisions: architectures, memory, time, trainable parameters."""
