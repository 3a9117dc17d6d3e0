"""Shapes and data shared by all layers: the spec, hardware profiles, model cards, JSON Schemas.

Imports nothing else of tunec.
"""
