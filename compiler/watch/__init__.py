"""What `watch: true` puts into a bundle: a probe around the trainer, and what the plan expects."""
