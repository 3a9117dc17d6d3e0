"""Slurm: the batch script that requests nodes and starts the processes on each of them."""
