"""Unsloth: the YAML of `unsloth train --config`."""
