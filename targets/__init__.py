"""One folder for each consumer: a two-way table between the consumer's keys and tunec's slots."""
