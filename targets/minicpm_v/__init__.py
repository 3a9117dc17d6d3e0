"""The minicpm-v target: finetune/finetune.py of OpenBMB/MiniCPM-V."""
