"""Runs that happened, beside their plans: what was seen, what follows, and the file of it."""
