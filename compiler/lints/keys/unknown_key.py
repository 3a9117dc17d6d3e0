"""A key that its reader does not know."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import did_you_mean, nearest
from tunec.compiler.lints.keys.known import (
    BF16_SCALING,
    foreign_keys,
    homes_of,
    is_whole,
    known_at,
    known_in_other_releases,
)
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.schemas import Fault, faults

_OF_ENGINES: Final = ("msamp",)
"""Blocks of engines made of DeepSpeed: accelerate 1.4.0 to 1.15.0 utils/dataclasses.py
`DeepSpeedPlugin` writes it for MS-AMP, whose `msamp.deepspeed.initialize` reads it."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("deepspeed"):
        if is_whole(document):
            for fault in faults(run, document):
                if fault.what == "unknown" and not _is_told_elsewhere(run, fault):
                    yield _in_deepspeed(run, fault)
    for document in run.of("hf"):
        if not document.is_partial:
            for place, near in foreign_keys(run, document):
                yield _near_miss(place, near)


def _is_told_elsewhere(run: Run, fault: Fault) -> bool:
    name = fault.path.rpartition(".")[2]
    return (
        fault.path in (*BF16_SCALING, *_OF_ENGINES)
        or fault.path.startswith("optimizer.params.")  # optimizer-parameter-refused
        or name.startswith(("_", "//", "#"))
        or bool(homes_of(run, fault.path))
        or bool(known_in_other_releases(run, "deepspeed", fault.path))
    )


def _in_deepspeed(run: Run, fault: Fault) -> Finding:
    holder, _, name = fault.path.rpartition(".")
    near = nearest(name, known_at(fault.schema))
    where = f" in {holder}" if holder else ""
    # a block drops "auto" before it looks at its keys
    is_dropped = fault.place.value == "auto" and not holder.startswith("scheduler")
    is_refused = fault.is_refused and not is_dropped
    return Finding(
        f"DeepSpeed knows no key `{name}`{where}",
        (fault.place.key_label("refused" if is_refused else "ignored"),),
        (f"by the keys of {run.release('deepspeed')}",),
        did_you_mean(near) or "remove it",
        Fix((fault.place.renamed(near[0]),), "unsafe") if len(near) == 1 else None,
        consequence="init" if is_refused else "silent",
    )


def _near_miss(place: Place, near: str) -> Finding:
    return Finding(
        f"TrainingArguments has no field `{place.path}`",
        (place.key_label("no field"),),
        (),
        f"did you mean `{near}`?",
        Fix((place.renamed(near),), "unsafe"),
        consequence="parse",
    )


RULE = Rule(
    name="unknown-key",
    severity="error",
    consequence="silent",
    consumers=("deepspeed", "transformers"),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/config.py `DeepSpeedConfig._initialize_params`: "
            "keys at the top are looked up by name and others never looked at; "
            "runtime/config_utils.py `DeepSpeedConfigModel`: blocks forbid extra keys"
        ),
        "deepspeedai/DeepSpeed#653, #774, #1809",
        "transformers 4.40.2 to 5.23.0 hf_argparser.py `HfArgumentParser.parse_dict`",
    ),
    check=_check,
)
