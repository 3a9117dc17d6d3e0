"""One folder a consumer: its keys and our slots, in one two-way table."""
