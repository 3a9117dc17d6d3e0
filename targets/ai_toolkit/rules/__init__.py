"""Lint rules for configs of ai-toolkit."""
