"""Rules about batch sizes in DeepSpeed's file, and about its data loader."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix, Label, Term
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.effective import Effective
from tunec.compiler.lints.facts.training_loop import is_whole
from tunec.compiler.lints.rows import Row, rows
from tunec.compiler.lints.rule import Finding, keys, rule


@rule("error", "init", consumers=("deepspeed",), reads=("deepspeed:train_batch_size",))
def batch_not_divisible(run: LintContext) -> Iterator[Finding]:
    """train_batch_size is given alone and cannot be divided evenly among the processes."""
    total = run.effective("deepspeed", "train_batch_size")
    steps = run.effective("deepspeed", "gradient_accumulation_steps")
    if not total.is_written or not is_whole(total.value) or total.value < 1 or total.place is None:
        return
    if run.said("deepspeed", "train_micro_batch_size_per_gpu") or run.of("trainer"):
        return
    accumulation = 1 if steps.value is None else steps.value
    world = run.data_parallel
    if world is None or not is_whole(accumulation) or accumulation < 1:
        return
    if total.value % (world * accumulation):
        yield _divisible_finding(total.place, total.value, world, accumulation)


def _divisible_finding(place: Place, total: int, world: int, accumulation: int) -> Finding:
    each = world * accumulation
    shared = f"{world} processes" + (f" x {accumulation} micro batches" if accumulation > 1 else "")
    micro = total // each
    near = micro * each or each
    came = f"{total} != {micro} x {accumulation} x {world}"
    return Finding(
        f"train_batch_size {total} is "
        + (f"less than {shared}" if micro == 0 else f"no multiple of {shared}"),
        (place.label("samples in one step"),),
        (
            "the micro batch comes out as 0, and is refused"
            if micro == 0
            else f"the remainder is dropped, and the product is then checked: {came}",
            "ZeRO shards states and not the batch: every process takes at least one sample",
        ),
        f"write a multiple of {each}: {near}",
        Fix((place.replaced(near),), "unsafe"),
        (
            Term("data parallel", world, "processes"),
            Term("gradient_accumulation_steps", accumulation, "micro batches"),
        ),
    )


_PINNED_KEYS: Final = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
)


@rule(
    "warning",
    "load",
    consumers=("deepspeed", "transformers"),
    reads=("deepspeed:train_batch_size",),
)
def batch_pinned_before_init(run: LintContext) -> Iterator[Finding]:
    """All three batch numbers are set in a file that is read before torch.distributed starts."""
    values = [run.effective("deepspeed", key) for key in _PINNED_KEYS]
    stage = run.effective("deepspeed", "zero_optimization.stage")
    numbers = [each.value for each in values if each.is_written and isinstance(each.value, int)]
    place = values[0].place
    if stage.value != 3 or len(numbers) < 3 or place is None or run.deepspeed_reader != "trainer":
        return
    total, micro, steps = numbers
    if total == micro * steps:
        return
    yield Finding(
        f"train_batch_size {total} is pinned at stage 3, where it is checked for 1 process first",
        (place.label(f"not {micro} x {steps} x 1"),),
        (
            (
                "from_pretrained hands the file to zero.Init; before the processes have met, "
                "DeepSpeed counts one"
            ),
        ),
        "leave train_batch_size out: DeepSpeed derives it",
        None if place.document.is_view else Fix((place.removed(),), "safe"),
        severity="note" if _parses_first(run) else None,
    )


_PARSED: Final = ("HfArgumentParser", "TrlParser", "TrainingArguments(", "Accelerator(")


def _parses_first(run: LintContext) -> bool:
    """Whether the processes meet before the model is loaded, as the arguments are parsed first.

    All known parsers do so: transformers 4.40.2 to 5.23.0 training_args.py `_setup_devices` sets up
    torch.distributed then. accelerate 0.30.1 to 1.15.0 accelerator.py `Accelerator.__init__` makes
    its state, which does the same, before a model can be loaded by the file of its plugin.
    """
    is_by_flags = any(each.format == "shell" for each in run.of("trainer"))
    python = [each.text for each in run.documents if each.format == "python"]
    is_late = bool(python) and not any(map(_COUNTS_ALONE.search, python))
    return is_by_flags or is_late or any(map(run.own.holds, _PARSED))


_COUNTS_ALONE: Final = re.compile(r"\A(?![\s\S]*init_distributed\()[\s\S]*HfDeepSpeedConfig\(")
"""Matches a script that passes the file to `from_pretrained` without starting torch.distributed."""


_TOTAL: Final = "train_batch_size"
_MICRO: Final = "train_micro_batch_size_per_gpu"
_STEPS: Final = "gradient_accumulation_steps"


@rule("error", "init", consumers=("deepspeed",), reads=("deepspeed:train_batch_size",))
def batch_product_mismatch(run: LintContext) -> Iterator[Finding]:
    """train_batch_size is not the product of micro batch, accumulation and processes."""
    total, micro, steps = (run.effective("deepspeed", key) for key in (_TOTAL, _MICRO, _STEPS))
    if total.source not in ("document", "filled") or not (_is_count(total) and _is_count(micro)):
        return
    if steps.source == "default":  # DeepSpeed then derives it: total // micro // world
        yield from _derived(run, total, micro)
    elif _is_count(steps):
        yield from _given(run, total, micro, steps)


def _is_count(value: Effective) -> bool:
    return is_whole(value.value) and value.value > 0


def _given(
    run: LintContext, total: Effective, micro: Effective, steps: Effective
) -> Iterator[Finding]:
    world = run.data_parallel
    each = micro.value * steps.value
    if world is None:
        if total.value % each:
            yield _product_finding(run, total, micro, steps, None)
    elif total.value != each * world:
        yield _product_finding(run, total, micro, steps, world)


def _derived(run: LintContext, total: Effective, micro: Effective) -> Iterator[Finding]:
    world = run.data_parallel
    if total.value % (micro.value * (world or 1)):
        yield _product_finding(run, total, micro, None, world)


def _product_finding(
    run: LintContext, total: Effective, micro: Effective, steps: Effective | None, world: int | None
) -> Finding:
    factors = [micro, *([steps] if steps else [])]
    product = " x ".join(str(each.value) for each in factors)
    known = f"{product} x {world}" if world else f"{product} x any number of processes"
    terms = [
        Term(_MICRO, micro.value, "samples"),
        *([Term(_STEPS, steps.value, "micro batches")] if steps else []),
    ]
    relation = "is no multiple of" if steps is None or world is None else "is not"
    place = total.place
    fix = None
    if place is not None and steps is not None and world is not None:
        fix = Fix((place.replaced(micro.value * steps.value * world),), "unsafe")
    return Finding(
        f"{_TOTAL} {total.value} {relation} {known}",
        (
            *([place.label("samples in one step")] if place else []),
            *(each.place.label("", primary=False) for each in factors if each.place),
        ),
        (_who(run),) if world else (),
        f"leave {_TOTAL} out: DeepSpeed derives it from the other two",
        fix,
        (*terms, *([Term("data parallel", world, "processes")] if world else [])),
    )


def _who(run: LintContext) -> str:
    winner = run.world
    return f"processes: {winner.reason}" if winner else ""


_SIZES: Final = ("train_micro_batch_size_per_gpu", "train_batch_size")
_SHOWN: Final = 2
"""The most sections in a file that is only an excerpt, such as in a forum thread or a manual."""
_REFERENCES: Final = (
    *("deepspeed", "deepspeed_config", "deepspeed_config.deepspeed_config_file"),
    "training_args.deepspeed",
)


@rule("error", "init", consumers=("deepspeed",), reads=("deepspeed:*",))
def batch_size_left_out(run: LintContext) -> Iterator[Finding]:
    """Both batch sizes are missing, and DeepSpeed needs at least one."""
    if run.of("simpletuner"):  # it writes its own batch size into the file
        return
    for document in run.of("deepspeed"):
        is_elastic = document.value("elasticity.enabled") is True  # which chooses them itself
        if document.is_view or is_elastic or not document.unknown.isdisjoint(_SIZES):
            continue
        if all(document.value(key) is None for key in _SIZES):
            yield _size_finding(run, document)


def _size_finding(run: LintContext, document: Document) -> Finding:
    steps = document.get("gradient_accumulation_steps")
    is_filled = run.deepspeed_reader == "trainer"
    return Finding(
        "neither train_micro_batch_size_per_gpu nor train_batch_size is given",
        (
            steps.label("they cannot be derived from the accumulation alone")
            if steps is not None
            else Label("no batch size", document.start()),
        ),
        (
            "the trainer fills in keys that are set to auto, and adds none that are missing"
            if is_filled
            else "DeepSpeed derives the one from the other, and needs one to begin with",
        ),
        f'write "{_SIZES[0]}": ' + ('"auto"' if is_filled else "and a number"),
        certain=run.deepspeed_reader != "unknown",
        severity="warning" if _is_excerpt(run, document) else None,
    )


def _is_excerpt(run: LintContext, document: Document) -> bool:
    """Whether a file may be an excerpt: it has few sections, and no other file refers to it."""
    if len(document.root.fields or ()) > _SHOWN:
        return False
    others = [each for each in run.documents if each is not document]
    return not any(isinstance(each.value(key), str) for each in others for key in _REFERENCES)


_DROP: Final = "dataloader_drop_last"
_SAMPLING: Final = "data_efficiency.data_sampling."
_SWITCHES: Final = (
    f"{_SAMPLING}curriculum_learning.enabled",
    f"{_SAMPLING}dynamic_batching.enabled",
)


@rule(
    "warning",
    "silent",
    consumers=("transformers", "accelerate"),
    reads=keys("deepspeed", _DROP, *_SWITCHES),
)
def deepspeed_loader_unread(run: LintContext) -> Iterator[Finding]:
    """ds_config.json configures DeepSpeed's data loader, but the Trainer loads the data."""
    if run.deepspeed_reader != "trainer":
        return
    drops = run.effective("trainer", _DROP).value
    for document in run.of("deepspeed"):
        at = document.get(_DROP)
        if at is not None and at.value is True and drops is not True:
            mend = f"write {_DROP}: true into the trainer's arguments"
            yield _deepspeed_finding(at, "an incomplete last batch is not dropped", mend)
        at = _sampling(document)
        if at is not None:
            name = at.path.split(".")[-2]
            yield _deepspeed_finding(at, f"no {name} takes place", "remove the block")


def _sampling(document: Document) -> Place | None:
    """The place that turns on a data sampler, if the blocks around it are enabled too."""
    around = [document.get(f"{_SAMPLING}enabled"), document.get("data_efficiency.enabled")]
    if any(at is None or at.value is not True for at in around):
        return None
    asked = (document.get(key) for key in _SWITCHES)
    return next((at for at in asked if at is not None and at.value is True), None)


def _deepspeed_finding(at: Place, what: str, mend: str) -> Finding:
    return Finding(
        f"{at.path} is not read under the Trainer: {what}",
        (at.label("not read"),),
        ("DeepSpeed builds its own loader of training_data, which the Trainer does not give it",),
        mend,
    )


_SAMPLER: Final = Row(
    f"deepspeed:{_SAMPLING}curriculum_learning.enabled=true",
    "curriculum_learning is enabled without curriculum_metrics",
    label="refused",
    why="DeepSpeed asserts that curriculum_metrics is present, whatever else is turned off",
    help="write curriculum_metrics, or enabled: false",
    beside=(f"no {_SAMPLING}curriculum_learning.curriculum_metrics",),
)

sampler_settings_missing = rows(
    "sampler-settings-missing",
    "error",
    "init",
    consumers=("deepspeed",),
    rows=(
        _SAMPLER,
        Row(
            f"deepspeed:{_SAMPLING}dynamic_batching.enabled=true",
            "dynamic_batching is enabled without max_tokens",
            label="refused",
            why="DeepSpeed asserts that max_tokens is present, whatever else is turned off",
            help="write max_tokens, or enabled: false",
            beside=(f"no {_SAMPLING}dynamic_batching.max_tokens",),
            since="deepspeed>=0.16",
        ),
    ),
)
