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
        *("auto-in-plain-deepspeed", "auto-never-filled"),
    }
)
_OF_THE_TRAINER: Final = frozenset(
    {
        *("auto-find-batch-size-refused", "deepspeed-and-fsdp", "fsdp-of-one-process"),
        *("workers-missing", "schedule-argument-unknown", "schedule-argument-missing"),
        *("batch-of-nothing", "optimizer-arguments", "split-batches-overrides-batch"),
    }
)
_OF_THE_RANKS: Final = frozenset({"parallel-width-does-not-divide", "tensor-parallel-under-zero-3"})
_WRAPPED: Final = frozenset(
    {"prescaled-gradients-refused", "quantized-gradients-need-scatter", "legacy-stage-1"}
)
_BATCH: Final = (
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"),
)
_KERNEL: Final = ("optimizer.params.", "scheduler.params.")
_OF_THE_STEP: Final = (
    *("steps_per_print", "flops_profiler.", "gradient_predivide_factor", "gradient_clipping"),
    *("data_efficiency.", "fp16.loss_scale"),
)
"""Numbers of ds_config.json that DeepSpeed hands on as they are, to what counts the steps."""


def _used_later(pair: Pair, ours: Sequence[Diagnostic], theirs: str) -> bool:
    later = [each for each in ours if each.id not in _OF_THE_TRAINER | _OF_THE_RANKS | _WRAPPED]
    return not theirs and all(
        each.id in _USED_LATER
        and each.primary is not None
        and (
            each.primary.path in (pair.arguments or {})
            or each.primary.path.startswith((*_KERNEL, *_OF_THE_STEP))
        )
        for each in later
    )


def _by(*rules: str) -> Applies:
    def applies(_: Pair, ours: Sequence[Diagnostic], theirs: str) -> bool:
        return not theirs and {each.id for each in ours} <= set(rules)

    return applies


def _elastic(pair: Pair, ours: Sequence[Diagnostic], theirs: str) -> bool:
    block = pair.config.get("elasticity")
    is_on = isinstance(block, dict) and block.get("enabled") is True
    labels = [each.primary for each in ours]
    return is_on and not theirs and all(at is not None and at.path in _BATCH for at in labels)


def _fraction(pair: Pair, ours: Sequence[Diagnostic], theirs: str) -> bool:
    labels = [each.primary for each in ours]
    return not theirs and all(
        at is not None and at.path in _BATCH and isinstance(pair.config.get(at.path), float)
        for at in labels
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
        "a token of the hub",
        "whether there is one on the machine that runs is not in the files",
        _says("Token is required"),
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
        "refused by ZeRO's optimizer",
        "ZeRO's wrapper around the optimizer asserts it, which is not made here: "
        "../test_zero_consumers.py makes it",
        _by(*_WRAPPED),
    ),
    Difference(
        "refused by the Trainer",
        "Trainer.__init__ and its schedule say it, which are not made here: consumers/ makes them",
        _by(*_OF_THE_TRAINER),
    ),
    Difference(
        "a width of ranks",
        "the engine says it when it forms the groups of its ranks, of which there is one here",
        _by(*_OF_THE_RANKS),
    ),
    Difference(
        "a client's optimizer that is exchanged",
        "accelerate gives the engine DeepSpeed's CPU Adam instead, and the engine is asked alone",
        _says("You are using ZeRO-Offload with a client provided optimizer"),
    ),
    Difference(
        "a package that is not there",
        "what is installed where the run will be is not in the files",
        _says("Unable to import apex"),
    ),
    Difference(
        "an optimizer that exchanges gradients itself",
        "the 1-bit optimizers of 0.14 to 0.18 ask for a process group, which is not there: "
        "no refusal of the file",
        _says("Please initialize the torch distributed backend"),
    ),
    Difference(
        "batch sizes of an elastic run",
        "elastic training puts its own in the place of what is written, of whatever type that is",
        _elastic,
    ),
    Difference(
        "a fraction of a sample",
        "the batch sizes come out, and the loader that is made by them refuses it: none is here",
        _fraction,
    ),
    Difference(
        "half precision by a word",
        "fp16 and bf16 that are no truth values pass as truths in one place and are compared in "
        "another, by release",
        _text_for_half,
    ),
)
