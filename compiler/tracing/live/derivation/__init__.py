"""Derive a model's architecture from its real class, built on the meta device."""
