"""Rules about configs of ai-toolkit."""
