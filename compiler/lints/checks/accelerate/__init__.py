"""Rules about accelerate's file against what it starts."""
