"""Rules about device memory: the account of the planner, run on what was read."""
