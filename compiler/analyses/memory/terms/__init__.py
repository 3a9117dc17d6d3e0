"""The terms of a run by subject, each with its lifetime."""
