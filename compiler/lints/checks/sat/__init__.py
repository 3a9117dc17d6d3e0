"""SwissArmyTransformer's flags, which VisualGLM's, CogVLM's and CogAgent's scripts take."""
