"""Rules about activation checkpointing: which activations are recomputed, and by which variant."""
