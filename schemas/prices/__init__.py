"""What machines cost an hour: dated lists with their sources, by provider and region."""
