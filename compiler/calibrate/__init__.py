"""Completed runs compared with their plans: observations, results, and the file that holds them."""
