"""Decisions: from a spec to a plan that is proven to fit."""
