"""Rules about samples as token sequences: packing, truncation, templates, masks."""
