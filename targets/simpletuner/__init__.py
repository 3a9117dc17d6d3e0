"""SimpleTuner: its flags, how its parser reads them, and how a plan is written in them."""
