"""The memory that a run of existing files needs."""
