"""Rules about attention, token sequences, widths of parallelism, and experts."""
