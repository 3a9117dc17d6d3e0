"""The visualglm target: finetune_visualglm.py of THUDM/VisualGLM-6B on SwissArmyTransformer."""
