"""Unsloth's YAML: what `unsloth train --config` reads."""
