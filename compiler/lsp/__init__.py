"""The language server: what an editor shows of specs and configs while they are written.

An `Analysis` holds everything known about one open file as immutable data. Each of the other
modules answers one kind of request from it, and only `server` communicates with the editor.
"""
