"""Many specs on many clusters: selection, incremental building, the lock, drift, the summary."""
