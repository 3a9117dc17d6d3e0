"""Prices of machines per hour: dated lists with their sources, by provider and region."""
