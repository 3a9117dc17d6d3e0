"""Where tunec and the real programs differ on purpose, by class, each with its reason."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pairs import Pair

from tunec.compiler.diagnostics.diagnostic import Diagnostic

Applies = Callable[[Pair, Sequence[Diagnostic], str], bool]
"""Of the pair, what tunec says is rejected, and the real refusal."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A class of differences."""

    name: str
    reason: str
    applies: Applies


def _says(*words: str) -> Applies:
    def applies(_: Pair, ours: Sequence[Diagnostic], theirs: str) -> bool:
        return not ours and any(each in theirs for each in words)

    return applies


_USED_LATER: Final = frozenset(
    {
        *("value-of-another-type", "number-as-text", "optimizer-number-refused"),
        *("tracker-not-supported", "boolean-as-text", "number-without-meaning"),
    }
)
_KERNEL: Final = ("optimizer.params.", "scheduler.params.")


def _used_later(pair: Pair, ours: Sequence[Diagnostic], theirs: str) -> bool:
    return not theirs and all(
        each.id in _USED_LATER
        and each.primary is not None
        and (each.primary.path in (pair.arguments or {}) or each.primary.path.startswith(_KERNEL))
        for each in ours
    )


def _text_for_half(pair: Pair, ours: Sequence[Diagnostic], theirs: str) -> bool:
    blocks = (pair.config.get("fp16"), pair.config.get("bf16"))
    half = [(pair.arguments or {}).get(each) for each in ("fp16", "bf16")]
    half += [each.get("enabled") for each in blocks if isinstance(each, dict)]
    is_odd = any(each != "auto" and not isinstance(each, bool | None) for each in half)
    return is_odd and bool(ours) != bool(theirs)


LISTED: Final = (
    Difference(
        "a field of nobody",
        "HfArgumentParser is often given classes of the script's own beside TrainingArguments, and "
        "their fields stand in the same file: only a near miss of a known field is told",
        _says("Some keys are not used by the HfArgumentParser"),
    ),
    Difference(
        "no output_dir",
        "it may be given on the command line; from 4.57 on there is a default",
        _says("missing 1 required positional argument: 'output_dir'"),
    ),
    Difference(
        "a file that is not there",
        "the file may be where the run will be: missing-file is a warning",
        _says("Expected a string path to an existing deepspeed config"),
    ),
    Difference(
        "a truth value that is a mapping or a broken number",
        "`a | b` of what are no truth values: `wall_clock_breakdown` beside the profiler's switch",
        _says("unsupported operand type(s) for |"),
    ),
    Difference(
        "used later",
        "neither the trainer's parser nor DeepSpeed's looks at the type of these: they fail where "
        "the value is used, when optimizer, schedule, tracker or loader are made; here no kernel "
        "and no loader is",
        _used_later,
    ),
    Difference(
        "half precision by a word",
        "fp16 and bf16 that are no truth values pass as truths in one place and are compared in "
        "another, by release",
        _text_for_half,
    ),
)
