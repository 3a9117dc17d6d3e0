"""Slurm: the batch script that asks for nodes and starts the processes on each of them."""
