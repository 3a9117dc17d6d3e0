"""Rules about unmodified scripts: alpaca-lora's, and the examples of diffusers."""
