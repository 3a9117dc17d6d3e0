"""Rules about attention, and samples as token sequences."""
