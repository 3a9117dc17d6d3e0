"""Rules about batch arithmetic."""
