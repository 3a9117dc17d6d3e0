"""Rules about launchers and processes."""
