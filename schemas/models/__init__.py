"""Models as data: cards of known models and the shape of an architecture."""
