"""Launch: the script that starts the processes, and what the launcher is told."""
