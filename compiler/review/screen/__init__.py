"""A plan on one screen: whether it fits, main decisions, duration, and the next commands."""
