"""Launch: the script that starts the processes, and the launcher's settings."""
