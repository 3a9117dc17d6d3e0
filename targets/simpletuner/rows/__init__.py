"""The rows of SimpleTuner's files, by subject, which map its keys to our slots and back.

Read from `simpletuner_sdk/server/services/field_registry/sections/` and from how
`helpers/configuration/cmd_args.py` processes the flags, at 3.1.6 and 4.10.1. If a key changed
between the two, the release of the change was found by comparing the wheels in between.
"""
