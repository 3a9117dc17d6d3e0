"""Rules about ZeRO and offload."""
