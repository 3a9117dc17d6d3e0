"""Rules about activation checkpointing: what is recomputed, and by which variant."""
