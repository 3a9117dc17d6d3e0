"""How DeepSpeed's launcher parses a command line; it starts nothing."""

import contextlib
import io
from collections.abc import Mapping
from typing import Any

import deepspeed
from deepspeed.launcher.runner import parse_args, parse_resource_filter

from tunec.targets.deepspeed.consumer.fields import plain


def arguments(question: Mapping[str, Any]) -> dict[str, Any]:
    """Parse `argv`, the words after the program's name, with the parser of `deepspeed`.

    `devices` is the number of devices on this node. Out: `version`; `refused` (None, or stage, type
    and message); `values` of every argument; `slots`, the devices chosen on this node.
    """
    said = io.StringIO()
    answer: dict[str, Any] = {"version": deepspeed.__version__, "refused": None, "values": {}}
    try:
        with contextlib.redirect_stderr(said):
            found = parse_args(list(question["argv"]))
    except SystemExit as left:
        lines = said.getvalue().strip().splitlines() or [f"status {left.code}"]
        refused = {"stage": "arguments", "type": "SystemExit", "message": lines[-1]}
        return {**answer, "refused": refused}
    values = {name: plain(value) for name, value in vars(found).items()}
    try:
        slots = _slots(found, question.get("devices", 1))
    except ValueError as fault:
        refused = {"stage": "devices", "type": "ValueError", "message": str(fault)}
        return {**answer, "values": values, "refused": refused}
    return {**answer, "values": values, "slots": slots}


def _slots(found: Any, devices: int) -> list[int]:
    """The devices that `main` chooses if this host is the only one."""
    host = {"localhost": list(range(devices))}
    chosen = parse_resource_filter(host, found.include, found.exclude)
    slots: list[int] = next(iter(chosen.values()), [])
    return list(range(found.num_gpus)) if found.num_gpus > 0 else slots
