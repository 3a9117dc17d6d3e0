"""DeepSpeed: ds_config.json, for DeepSpeed itself and for trainers that hand the file on to it."""
