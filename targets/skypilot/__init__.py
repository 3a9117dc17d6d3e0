"""SkyPilot: the task that requests machines of a cloud and starts the processes there."""
