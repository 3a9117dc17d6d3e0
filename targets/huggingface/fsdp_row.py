"""How a row of `fsdp` and `fsdp_config` is written and read, for both forms of `fsdp`."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Entry, Json
from tunec.targets.accelerate.config import by_accelerate
from tunec.targets.accelerate.fsdp import SHARDING
from tunec.targets.rows import on_fsdp

ARGUMENTS: Final = "transformers 4.40.2 to 5.23.0 training_args.py `TrainingArguments`"
PROCESS: Final = "transformers 5.0.0 to 5.23.0 training_args.py `_process_fsdp_args`"
PLUGIN: Final = "accelerate utils/dataclasses.py `FullyShardedDataParallelPlugin`"
SWITCH: Final = "5.10"
"""The first release in which `fsdp` is a switch."""
SECOND: Final = "5.0"
"""The first release with a key for FSDP 2."""
CONFIG: Final = "fsdp_config"
Found = Mapping[str, Json]


def words_of(plan: Plan) -> str:
    """The value of `fsdp` as words."""
    wraps = ["auto_wrap"] if plan.fsdp.wrap != "none" else []
    offloads = ["offload"] if plan.fsdp.offload_params else []
    return " ".join([SHARDING[plan.fsdp.sharding].lower(), *wraps, *offloads])


def _said(found: Found) -> list[str] | None:
    """The words of `fsdp`, empty for a switch that is on; None if FSDP is off or unknown."""
    value = found.get("fsdp")
    if isinstance(found.get(CONFIG), str):
        return None  # another file
    if value is True:
        return []
    words = value.split() if isinstance(value, str) else value
    if not isinstance(words, list) or not words or words == ["false"]:
        return None
    return [str(word) for word in words]


def row(
    keys: tuple[str, ...],
    slots: tuple[str, ...],
    write: Callable[[Plan], Mapping[str, Json]],
    read: Callable[[list[str], Found], Mapping[str, Any]],
    *,
    switch: bool,
    since: str | None = None,
    until: str | None = None,
    when: Callable[[Plan], bool] = on_fsdp,
    source: str = ARGUMENTS,
) -> Entry:
    """A row of `fsdp_config`; `read` also gets the words of `fsdp`."""
    named = tuple(f"{CONFIG}.{key}" for key in keys)

    def put(plan: Plan) -> Mapping[str, Json]:
        inside = {f"{CONFIG}.{key}": value for key, value in write(plan).items()}
        return {"fsdp": True if switch else words_of(plan), **inside}

    def take(found: Found) -> Mapping[str, Any]:
        words = _said(found)
        if words is None:
            return {}
        inside = {
            key.removeprefix(f"{CONFIG}."): value
            for key, value in found.items()
            if key in named and value is not None
        }
        return {slot: v for slot, v in read(words, inside).items() if v is not None}

    return Entry(
        ("fsdp", CONFIG, *named), slots, put, take, source, since=since, until=until, when=when
    )


def version_of(found: Found, *, switch: bool) -> int:
    """The version of FSDP; without a key it is 2 for a switch, else 1."""
    return int(str(found.get("version", 2 if switch else 1)))


def not_by_accelerate(condition: Callable[[Plan], bool]) -> Callable[[Plan], bool]:
    """A condition that also requires that `accelerate launch` sets no variables."""

    def when(plan: Plan) -> bool:
        return condition(plan) and not by_accelerate(plan)

    return when
