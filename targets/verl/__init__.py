"""verl: the YAML that Hydra composes for its trainers."""
