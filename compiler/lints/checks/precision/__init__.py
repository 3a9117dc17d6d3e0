"""Rules about precision in relation to hardware, engine and optimizer."""
