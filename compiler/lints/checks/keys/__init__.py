"""Rules about keys and types."""
