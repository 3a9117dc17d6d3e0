"""Gradient accumulation, and batch sizes that are set twice or too small."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix, Term
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place, also
from tunec.compiler.lints.effective import FILLS, Effective
from tunec.compiler.lints.facts.known_keys import is_whole as is_whole_file
from tunec.compiler.lints.facts.training_loop import engine_of, is_whole, trainer_batch
from tunec.compiler.lints.rows import Mend, Row, rows
from tunec.compiler.lints.rule import Finding, keys, rule

accumulation_given_twice = rows(
    "accumulation-given-twice",
    "error",
    "init",
    consumers=("transformers",),
    rows=(
        Row(
            "trainer:accelerator_config.gradient_accumulation_kwargs.num_steps?",
            "gradient_accumulation_steps is {1.value}, and accelerator_config says num_steps "
            "{0.value}",
            label="refused beside the other",
            why="the trainer takes one of the two, and does not know which is meant",
            help="remove num_steps",
            mend=Mend("unsafe", remove=True),
            beside=("trainer:gradient_accumulation_steps>1",),
        ),
    ),
)


_KEY: Final = "gradient_accumulation_steps"


@rule("error", "silent", consumers=("accelerate<1.8",), reads=(f"trainer:{_KEY}",))
def accumulation_left_out(run: LintContext) -> Iterator[Finding]:
    """The trainer accumulates gradients, but DeepSpeed's file does not set accumulation."""
    asked = run.said("trainer", _KEY)
    if asked is None or not is_whole(asked.value) or asked.value < 2:
        return
    if run.runs("accelerate<0.21") is True:
        return  # transformers 4.30.2 deepspeed.py `deepspeed_init` asks no plugin
    for document in run.of("deepspeed"):
        if not is_whole_file(document) or document.get(_KEY) or _KEY in document.unknown:
            continue
        added = None if document.is_view else document.added(_KEY, "auto")
        yield Finding(
            f"{_KEY} {asked.value} does not reach DeepSpeed, which steps at every micro batch",
            (asked.label("not used"), document.lacking(_KEY)),
            (
                (
                    "accelerate puts 1 where the file leaves it out; before 1.8 the engine goes by "
                    "that alone, and the batch shrinks by that factor"
                ),
            ),
            f'write "{_KEY}": "auto" in the DeepSpeed file',
            Fix((added,), "unsafe") if added else None,
            severity=None if run.runs("accelerate<1.8") else "note",
        )


@rule("error", "init", consumers=("transformers",), reads=("trainer:auto_find_batch_size",))
def auto_find_batch_size_refused(run: LintContext) -> Iterator[Finding]:
    """The trainer searches for a batch size under an engine that cannot change it."""
    find = run.said("trainer", "auto_find_batch_size")
    if find is None or find.value is not True:
        return
    engine = engine_of(run)
    stage = run.effective("deepspeed", "zero_optimization.stage")
    if engine == "DeepSpeed" and stage.value == 3:
        name, others = "ZeRO-3", [stage.place]
    elif engine and run.runs("transformers<4.46"):
        name, others = engine, [run.said("trainer", "deepspeed", "fsdp")]
    else:
        return
    yield Finding(
        f"auto_find_batch_size cannot be used with {name}",
        (find.label("refused"), *(e.label("", primary=False) for e in others if e is not None)),
        ("the engine is built for one micro batch; it cannot be rebuilt for another",),
        "remove auto_find_batch_size, and write a batch size that fits",
    )


_FP16_WINS: Final = "axolotl>=0.13"
"""axolotl 0.13.2 and 0.19.0 utils/config/__init__.py `resolve_dtype`; earlier, `bf16: auto` takes
precedence."""


@rule("error", "init", consumers=("transformers",), reads=keys("deepspeed", *FILLS))
def deepspeed_and_trainer_differ(run: LintContext) -> Iterator[Finding]:
    """DeepSpeed's file and the trainer's arguments set different values."""
    if not run.of("trainer"):
        return
    for key, (words, fill) in FILLS.items():
        ours = run.effective("deepspeed", key)
        if not ours.is_written or ours.value is None or ours.place is None:
            continue
        theirs = fill(run)
        if theirs is not None and not _agree(ours.value, theirs):
            yield _differ(run, key, ours.place, words, theirs)
    yield from _left_out(run)


def _left_out(run: LintContext) -> Iterator[Finding]:
    """Report fp16 in Axolotl's file, which turns off a bf16 that is missing or `auto`."""
    key = "bf16.enabled"
    ours = run.effective("deepspeed", key)
    for document in run.of("axolotl") if run.runs(_FP16_WINS) is not False else ():
        half, own = document.get("fp16"), document.get("bf16")
        is_half = half is not None and half.value is True
        is_open = (own is None or own.value in (None, "auto")) and "bf16" not in document.unknown
        if half and is_half and is_open and ours.value is True and ours.place is not None:
            yield Finding(
                f"`{ours.place.path}` is True, and fp16 turns the trainer's bf16 off",
                (
                    half.label("the trainer's bf16 becomes False"),
                    ours.place.label("by DeepSpeed's file", primary=False),
                ),
                (f"the trainer compares `{key}` with its own arguments and refuses to start",),
                "write bf16: true instead, or enable fp16 in DeepSpeed's file",
            )


def _agree(ours: Any, theirs: Any) -> bool:
    """Whether two values are equal by ==, as the trainer compares them: "2" differs from 2."""
    return bool(ours == theirs)


_LAUNCHERS_WORD: Final = "mixed_precision"
"""A key of accelerate's file, which does not show the scripts that use it or their flags."""


def _says_a_half(run: LintContext) -> bool:
    return run.said("trainer", "fp16", "bf16") is not None


def _differ(run: LintContext, key: str, place: Place, words: str, theirs: Any) -> Finding:
    others = _places(run, words)
    text = f"{place.value!r} (text)" if isinstance(place.value, str) else f"{place.value}"
    by = "" if others else f", {_default(run, words).by}"
    return Finding(
        f"`{place.path}` is {text}, but {words} is {theirs}{by}",
        (
            place.label("by DeepSpeed's file"),
            *(each.label("by the trainer", primary=False) for each in others),
        ),
        (f"the trainer compares `{key}` with its own arguments and refuses to start",),
        f'set `{place.path}` to "auto", or give both the same value',
        certain=bool(others) or _is_named(run, place),
        severity=None if others or _is_of_files(run) else "warning",
    )


def _is_named(run: LintContext, place: Place) -> bool:
    """Whether a value that is missing from the arguments is known to be unset.

    It is if the arguments name the engine's file, or all come from files; otherwise a program that
    starts the engine itself, or flags that are not shown, may set it.
    """
    if place.path == _LAUNCHERS_WORD:
        return _says_a_half(run)
    return _is_of_files(run) or run.said("trainer", "deepspeed") is not None


def _is_of_files(run: LintContext) -> bool:
    """Whether the trainer's arguments are in files, so that the absent ones have their defaults."""
    return all(each.format not in ("shell", "python") for each in run.of("trainer"))


def _places(run: LintContext, words: str) -> list[Place]:
    names = words.replace(" or ", ", ").replace(" x ", ", ").split(", ")
    found = (run.said("trainer", name) for name in names)
    return [place for place in found if place is not None]


def _default(run: LintContext, words: str) -> Effective:
    return run.effective("trainer", words.partition(",")[0].partition(" ")[0])


@rule(
    "error",
    "silent",
    consumers=("transformers",),
    reads=keys("trainer", "accelerator_config.split_batches", "split_batches"),
)
def split_batches_overrides_batch(run: LintContext) -> Iterator[Finding]:
    """The batch per device is split among the devices."""
    split = run.said("trainer", "accelerator_config.split_batches", "split_batches")
    batch = run.effective("trainer", "per_device_train_batch_size")
    if split is None or split.value is not True:
        return
    world = run.data_parallel
    if world == 1:
        return
    count = f"all {world} processes" if world else "all processes"
    each = batch.value if is_whole(batch.value) else "the batch size"
    indivisible = bool(world and is_whole(batch.value) and batch.value % world)
    yield Finding(
        f"per_device_train_batch_size {each} is shared by {count}, because split_batches is on",
        (split.label("splits each batch"), *also(batch.place)),
        (
            f"the batch is no multiple of {world}, and refused"
            if indivisible
            else "steps, warm-up and DeepSpeed's train_batch_size are counted as if each process "
            "had the whole batch",
        ),
        "remove split_batches",
        severity="error" if indivisible else None if world else "warning",
        consequence="init" if indivisible else None,
    )


_NO_SAMPLES: Final = "batch_size should be a positive integer value"

batch_of_nothing = rows(
    "batch-of-nothing",
    "error",
    "init",
    consumers=("transformers",),
    rows=(
        *(
            Row(
                f"trainer:{key}<1",
                "`{0.path}` is {0.value}",
                label="at least 1",
                why=why,
                help="write 1 or more",
                mend=Mend("unsafe", write=1),
            )
            for key, why in (
                ("per_device_train_batch_size", _NO_SAMPLES),
                ("per_device_eval_batch_size", _NO_SAMPLES),
                ("gradient_accumulation_steps", "integer division or modulo by zero"),
            )
        ),
    ),
)


@rule(
    "note",
    "out-of-memory",
    consumers=("deepspeed",),
    reads=("trainer:per_device_train_batch_size",),
)
def least_batch_of_zero_3(run: LintContext) -> Iterator[Finding]:
    """One sample per process at ZeRO-3: the smallest batch, which is still one per process."""
    stage = run.effective("deepspeed", "zero_optimization.stage")
    batch, world, total = trainer_batch(run), run.data_parallel, run.value("parallel.world")
    if stage.value != 3 or batch is None or world is None or world < 2 or world != total:
        return
    micro, steps = batch
    if micro.value != 1 or steps.value != 1 or micro.place is None:
        return
    yield Finding(
        f"one step takes {world} samples: 1 on each of {world} processes",
        (micro.place.label("on each process"), *also(stage.place)),
        (
            (
                "ZeRO-3 shards parameters, gradients and states; every process still works on "
                "whole samples of its own, with all their activations"
            ),
        ),
        "to lay one sample over several devices use tensor or sequence parallelism",
        sum=(Term("micro batch", 1, "samples"), Term("data parallel", world, "processes")),
    )
