"""A flag of `accelerate launch` in whose place an older launcher takes what its file says."""

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, Final

from tunec.compiler.lints.batch.counts import number_of
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_BLOCKS: Final = {
    "deepspeed_config": "",
    "fsdp_config": "fsdp_",
    "megatron_lm_config": "",
    "dynamo_config": "",
    "mpirun_config": "",
}
"""Blocks of the file, and what the launcher puts before a key of theirs that does not say it."""


def _check(run: Run) -> Iterator[Finding]:
    files = [each for each in run.of("accelerate") if not each.is_view]
    for launch in launches(run, "accelerate"):
        for document in files:
            if _is_read(launch, document):
                yield from _overridden(launch, document)


def _is_read(launch: Document, document: Document) -> bool:
    """Whether a command reads that file: the one that it names, or the default one."""
    named = launch.get("flags.config_file")
    if named is None:
        return "flags.config_file" not in launch.unknown
    return PurePath(str(named.value)).name == PurePath(document.name).name


def _overridden(launch: Document, document: Document) -> Iterator[Finding]:
    for path, said in document.found.items():
        block, _, key = path.partition(".")
        if block not in _BLOCKS or not key or "." in key:
            continue
        before = _BLOCKS[block]
        flag = launch.get(f"flags.{key if before.strip('_') in key else before + key}")
        if flag is not None and not _are_alike(flag.value, said.value):
            yield _finding(flag, said)


def _are_alike(flag: Any, said: Any) -> bool:
    if str(flag).lower() == str(said).lower():
        return True
    number = number_of(flag)
    return number is not None and number == number_of(said)


def _finding(flag: Place, said: Place) -> Finding:
    name = flag.path.removeprefix("flags.")
    return Finding(
        f"--{name} {flag.value} is not taken: the file says {said.value}",
        (flag.label("not taken"), said.label("taken", primary=False)),
        (
            (
                "before accelerate 1.5 the blocks of the file are set over the flags; what "
                "stands in no block, as num_processes, is taken from the flags"
            ),
        ),
        f"write {flag.value} in the file, or remove {said.path} from it",
    )


RULE = Rule(
    name="flag-overridden-by-file",
    severity="error",
    consequence="silent",
    consumers=("accelerate<1.5",),
    sources=(
        (
            "accelerate 0.30.1 to 1.4.0 commands/launch.py `_validate_launch_command`: setattr for "
            "each key of defaults.deepspeed_config and of the other blocks, whatever the flag "
            "says; 1.5.0 to 1.15.0: only where the key is not in args.nondefault"
        ),
        "huggingface/accelerate#3203",
    ),
    check=_check,
)
