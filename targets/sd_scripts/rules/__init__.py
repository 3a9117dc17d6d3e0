"""Rules about configs, commands and data of sd-scripts."""
