"""Rules about how samples reach the devices."""
