"""A key of accelerate's file that the launcher takes from its flags alone."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from tunec.compiler.lints.accelerate.counted import count
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.schemas.frozen import dataclass

_DEVICES: Final = ("MULTI_GPU", "DEEPSPEED", "FSDP", "MEGATRON_LM")


@dataclass(frozen=True, slots=True)
class _Key:
    name: str
    is_asked: Callable[[Any], bool]
    is_read: Callable[[Document], bool]
    """Whether the run would use it, were it taken from the file."""


def _is_yes(value: Any) -> bool:
    return value is True or str(value).lower() in ("yes", "true")


def _nodes(document: Document) -> bool:
    machines = count(document, "num_machines")
    return machines is not None and machines[0] > 1


_KEYS: Final = (
    _Key(
        "rdzv_backend",
        lambda value: isinstance(value, str) and value not in ("static", ""),
        _nodes,
    ),
    _Key("enable_cpu_affinity", _is_yes, lambda _: True),
    _Key(
        "downcast_bf16",
        _is_yes,
        lambda document: document.value("distributed_type") in ("TPU", "XLA"),
    ),
)


def _check(run: Run) -> Iterator[Finding]:
    started = [name for each in launches(run, "accelerate") for name in each.found]
    for document in run.of("accelerate"):
        if document.is_view:
            continue
        for key in _KEYS:
            at = document.get(key.name)
            if at is None or not key.is_asked(at.value) or not key.is_read(document):
                continue
            if f"flags.{key.name}" not in started:
                yield _finding(at, key)
        yield from _processor(document)


def _finding(at: Place, key: _Key) -> Finding:
    return Finding(
        f"{at.path} {at.value} in the file is not read",
        (at.label("not read"),),
        ("the file is asked where a flag is None alone, and this one has a default",),
        f"give --{key.name}{'' if _is_yes(at.value) else f' {at.value}'} to accelerate launch",
    )


def _processor(document: Document) -> Iterator[Finding]:
    """`use_cpu` beside an engine of devices: its launcher sets no ACCELERATE_USE_CPU."""
    at, engine = document.get("use_cpu"), document.get("distributed_type")
    if at is not None and at.value is True and engine is not None and engine.value in _DEVICES:
        yield Finding(
            f"use_cpu is not read beside {engine.value}: the processes take devices",
            (at.label("not read"), engine.label("", primary=False)),
            ("ACCELERATE_USE_CPU is set for NO and MULTI_CPU alone",),
            "write MULTI_CPU, or give --cpu to accelerate launch",
        )


RULE = Rule(
    name="key-of-flags-only",
    severity="warning",
    consequence="silent",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 commands/launch.py `_validate_launch_command`: "
            "setattr(args, name, attr) where getattr(args, name, None) is None; "
            "`launch_command_parser`: the defaults of --rdzv_backend, --enable_cpu_affinity and "
            "--downcast_bf16; utils/launch.py `prepare_simple_launcher_cmd_env`: ACCELERATE_USE_CPU"
        ),
    ),
    check=_check,
)
