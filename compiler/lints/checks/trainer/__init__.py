"""Rules about switches of the trainer that turn others on or off."""
