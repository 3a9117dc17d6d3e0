"""From text to a typed spec: nodes with places, composition, typing, every fault at once."""
