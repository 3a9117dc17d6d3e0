"""Reading a plan: why each value is what it is, and what it costs."""
