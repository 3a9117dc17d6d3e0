"""Arithmetic without decisions: architectures, memory, time, what is trainable."""
