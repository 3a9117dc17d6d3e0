"""kohya-ss/musubi-tuner: configs and commands of its trainers, which are only read."""
