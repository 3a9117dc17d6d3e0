"""verl: the YAML that Hydra composes for its trainer of given texts."""
