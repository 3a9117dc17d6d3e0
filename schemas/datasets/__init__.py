"""Data sets on the Hub that many train on: their columns, configurations, splits and samples."""
