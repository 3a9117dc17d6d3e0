"""Rules about files, keys and types."""
