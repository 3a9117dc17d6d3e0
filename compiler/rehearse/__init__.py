"""Runs the emitted files on this machine, with the model shrunk until it fits."""
