"""OpenRLHF: launch scripts with the flags of its trainers of given texts and of pairs."""
