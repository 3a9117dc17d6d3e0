"""The glm4 target: finetune.py and finetune_vision.py of zai-org/GLM-4."""
