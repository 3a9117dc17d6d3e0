"""The review of a pull request: one comment that is updated in place, and a check."""
