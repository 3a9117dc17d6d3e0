"""Tracing: the real model of a plan, run on tensors without data, every storage followed.

`live` imports torch and its like and is imported only where a trace is asked for; what stands
beside it (what is traced, the recorded figures, the comparison with the account) is plain data.
"""
