"""torchtune: read, and never written."""
