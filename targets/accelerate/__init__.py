"""accelerate: the YAML of `accelerate launch --config_file`."""
