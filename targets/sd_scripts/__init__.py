"""kohya-ss/sd-scripts: configs and commands of its trainers, which are only read."""
