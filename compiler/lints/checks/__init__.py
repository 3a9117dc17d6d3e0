"""Rules by subject, each with its page beside it."""
