"""DeepSpeed's ds_config.json, for DeepSpeed itself and for trainers that pass the file on to it."""
