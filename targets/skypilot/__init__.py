"""SkyPilot: the task that asks a cloud for machines and starts the processes there."""
