"""Rules about what only Axolotl's YAML can get wrong."""
