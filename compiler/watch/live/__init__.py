"""Code that a bundle carries, and that runs beside torch and transformers."""
