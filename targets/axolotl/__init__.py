"""Axolotl's YAML: read and checked in every known release, written from 0.13 on."""
