"""A hardware profile of this machine: the output of its own tools, read once, and what follows."""
