"""Tracing: runs a plan's real model on tensors without data, and follows every storage.

`live` imports torch and similar packages, and is imported only when a trace is requested. The
modules beside it (the subject, the recorded figures, the comparison with the account) are plain
data.
"""
