"""torchtune: files are only read."""
