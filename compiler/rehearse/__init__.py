"""Running the emitted files for real, on this machine, with a model shrunk until it fits."""
