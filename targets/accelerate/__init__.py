"""accelerate's YAML file for `accelerate launch --config_file`."""
