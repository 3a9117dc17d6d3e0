"""The memory account: bytes on the device and on the host, each with its name."""
