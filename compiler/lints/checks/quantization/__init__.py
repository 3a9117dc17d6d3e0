"""Rules about quantised weights: what may be trained on them, and beside what."""
