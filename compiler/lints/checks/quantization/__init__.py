"""Rules about quantised weights: what can be trained on them, and beside which settings."""
