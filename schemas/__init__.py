"""Shapes and data that cross a border: the spec, hardware profiles, model cards, JSON Schemas.

Imports nothing else of tunec.
"""
