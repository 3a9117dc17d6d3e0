"""Rules about logs, trackers and the hub."""
