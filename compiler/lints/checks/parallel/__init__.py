"""Rules about tensor, sequence and pipeline parallelism."""
