"""fit: one joint search over everything that memory and speed depend on together."""
