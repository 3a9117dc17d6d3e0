"""Rules about the flags of OpenRLHF."""
