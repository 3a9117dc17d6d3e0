"""Rules about existing configs: one file for each rule, with its page."""
