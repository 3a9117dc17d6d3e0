"""Facts about files and their surroundings by subject, for the rules that need them."""
