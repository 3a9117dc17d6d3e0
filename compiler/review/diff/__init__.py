"""What a change of a spec does: to the intent, to the decisions, and to each cluster."""
