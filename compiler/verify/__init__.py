"""Handing each file to the program that reads it, and comparing what it resolves with the plan."""
