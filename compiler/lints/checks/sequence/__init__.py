"""Rules about attention, samples as token sequences, widths of parallelism and experts."""
