"""Choosing a cluster: one spec planned on many of them, with hours, prices and energy."""
