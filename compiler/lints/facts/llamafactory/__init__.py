"""Choices and templates of LLaMA-Factory."""
