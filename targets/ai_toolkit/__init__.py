"""ostris/ai-toolkit: configs of its diffusion trainer, which are read and never written."""
