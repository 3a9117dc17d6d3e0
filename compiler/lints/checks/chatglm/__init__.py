"""The P-tuning script of ChatGLM-6B and ChatGLM2-6B."""
