"""What `watch: true` adds to a bundle: a probe around the trainer, and the plan's expectations."""
