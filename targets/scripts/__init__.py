"""Shared parts of trainers that are scripts of a repository: command lines, sources, facts."""
