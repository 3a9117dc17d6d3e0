"""Passes: each decides some groups of slots from facts and earlier decisions."""
