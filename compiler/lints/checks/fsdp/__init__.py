"""Rules about fully sharded data parallelism."""
