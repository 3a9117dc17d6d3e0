"""A hardware profile of this machine: what its own tools say, read once, and what follows."""
