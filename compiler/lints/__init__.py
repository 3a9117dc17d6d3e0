"""Rules about configs that exist: one rule a file, with its page."""
