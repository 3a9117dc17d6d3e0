"""Rules about configs, commands and data of musubi-tuner."""
