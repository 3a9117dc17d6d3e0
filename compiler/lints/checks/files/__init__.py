"""Rules about files that cannot be read or recognised."""
