"""The effect of a change to a spec: on its fields, on the decisions, and on each cluster."""
