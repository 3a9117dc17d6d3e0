"""Keys of consumers by release."""
