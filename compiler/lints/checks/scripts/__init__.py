"""Rules about scripts as their makers wrote them: alpaca-lora's, and diffusers' examples."""
