"""A plan on one screen: whether it fits, what matters of it, how long it runs, what comes next."""
