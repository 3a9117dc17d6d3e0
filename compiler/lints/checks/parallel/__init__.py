"""Rules about widths of parallelism and mixtures of experts."""
