"""The rows of SimpleTuner's files, by subject: its keys tied to our slots, both ways.

Read from `simpletuner_sdk/server/services/field_registry/sections/` and from what
`helpers/configuration/cmd_args.py` makes of the flags, at 3.1.6 and 4.10.1. Where a key changed
between the two, the release that brought the change was found by comparing the wheels between them.
"""
