"""JSON Schemas as files: our own, generated, and each consumer's at each version."""
