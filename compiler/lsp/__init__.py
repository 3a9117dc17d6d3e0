"""The language server: what an editor shows of specs and configs while they are written.

An `Analysis` is all that is known of one open file, as immutable data; the other modules answer one
question each from it, and only `server` listens and speaks.
"""
