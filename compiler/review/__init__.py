"""Reviews of a plan: why each value was chosen, and what memory, time and money it costs."""
