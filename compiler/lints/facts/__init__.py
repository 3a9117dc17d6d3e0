"""What files and their surroundings say of a subject, for the rules that need it."""
