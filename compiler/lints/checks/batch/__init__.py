"""Rules about batch arithmetic and data loaders."""
