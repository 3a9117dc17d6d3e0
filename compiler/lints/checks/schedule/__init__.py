"""Rules about how long training lasts and how the learning rate moves."""
