"""Rules about host RAM and NVMe."""
