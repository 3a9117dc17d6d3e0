"""ostris/ai-toolkit: configs of its trainer of denoisers, which are read and never written."""
