"""OpenRLHF: launch scripts with the flags of its trainers of SFT and DPO."""
