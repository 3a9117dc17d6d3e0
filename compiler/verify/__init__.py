"""Hands each file to the program that reads it, and compares what it resolves with the plan."""
