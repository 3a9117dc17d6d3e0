"""Rules about precision against hardware, engine and optimizer."""
