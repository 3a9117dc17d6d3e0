"""SimpleTuner: its flags, what its parser makes of them, and how a plan is written in them."""
