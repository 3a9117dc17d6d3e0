"""Rules about verl's files."""
