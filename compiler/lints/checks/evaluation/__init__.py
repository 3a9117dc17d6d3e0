"""Rules about evaluation and saving."""
