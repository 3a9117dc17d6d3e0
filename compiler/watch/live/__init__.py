"""Code that is copied into bundles, and runs with torch and transformers."""
