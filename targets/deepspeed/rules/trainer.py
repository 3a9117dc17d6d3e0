"""Rules about DeepSpeed's file beside the Trainer's settings."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place, also
from tunec.compiler.lints.facts.known_keys import is_whole
from tunec.compiler.lints.facts.sharding import stage_of
from tunec.compiler.lints.facts.training_loop import is_number
from tunec.compiler.lints.rule import Finding, rule
from tunec.targets.deepspeed.rules.optimizer import is_of_nobody

_SAME: Final[Mapping[str, str]] = {
    "linear": "WarmupDecayLR",
    "constant_with_warmup": "WarmupLR",
    "cosine": "WarmupCosineLR",
}
"""DeepSpeed's scheduler for each schedule of the Trainer: transformers 5.23.0 docs, deepspeed.md
"Scheduler"; deepspeed 0.19.8 runtime/lr_schedules.py."""


@rule("error", "silent", consumers=("transformers",), reads=("trainer:lr_scheduler_type",))
def scheduler_overridden(run: LintContext) -> Iterator[Finding]:
    """A scheduler section in DeepSpeed's file overrides the trainer's schedule."""
    section = run.said("deepspeed", "scheduler.type", "scheduler")
    asked = run.said("trainer", "lr_scheduler_type")
    if section is None or asked is None or not isinstance(asked.value, str):
        return
    kind = section.value if isinstance(section.value, str) else None
    if _SAME.get(asked.value) == kind or (asked.value == "constant" and _is_level(section)):
        return
    yield Finding(
        f"lr_scheduler_type {asked.value} is overridden by DeepSpeed's {kind or 'scheduler'}",
        (asked.label("not used"), section.label("used", primary=False)),
        ("a scheduler section in DeepSpeed's file always wins; the names are not compared",),
        "remove the section: the trainer then builds its own schedule",
    )


def _is_level(section: Place) -> bool:
    """Whether DeepSpeed's schedule begins at the rate at which it ends, and stays there."""
    if section.value != "WarmupLR":
        return False
    least, most = (
        section.document.value(f"scheduler.params.warmup_{e}_lr") for e in ("min", "max")
    )
    return isinstance(most, int | float) and bool(least == most)


@rule(
    "error",
    "init",
    consumers=("deepspeed>=0.19.6",),
    reads=("deepspeed:scheduler.params.warmup_num_steps",),
)
def warmup_of_zero_steps(run: LintContext) -> Iterator[Finding]:
    """DeepSpeed's scheduler has a warm-up of zero steps."""
    for place in run.each("deepspeed", "scheduler.params.warmup_num_steps"):
        value = place.value
        if value == "auto" and _is_filled_with_none(run):
            yield Finding(
                "warmup_num_steps auto becomes 0: the trainer has no warmup",
                (place.label("filled in as 0, then rejected"), *also(run.said("trainer", *_KEYS))),
                ("transformers 5.23.0 and later fill in 1 instead",),
                "write warmup_steps: 1, or remove the scheduler",
            )
        if isinstance(value, bool) or not isinstance(value, int | float) or value > 0:
            continue
        yield Finding(
            f"warmup_num_steps {value} is not positive",
            (place.label("refused"),),
            ("before 0.19.6 it was silently raised to 2",),
            "write 1, or remove the scheduler",
            Fix((place.replaced(1),), "safe"),
        )


_KEYS: Final = ("warmup_steps", "warmup_ratio")


def _is_filled_with_none(run: LintContext) -> bool:
    """Whether the release fills in the trainer's warm-up, and the trainer has none."""
    if run.runs("transformers<5.16") is not True or run.deepspeed_reader == "plain":
        return False
    values = [run.effective("trainer", key) for key in _KEYS]
    return values[0].known and all(each.value in (0, None) for each in values)


@rule("error", "silent", consumers=("deepspeed", "transformers"), reads=("trainer:max_grad_norm",))
def clipping_left_out(run: LintContext) -> Iterator[Finding]:
    """The trainer's gradient clipping does not reach DeepSpeed."""
    asked = run.said("trainer", "max_grad_norm")
    if asked is None or not is_number(asked.value):
        return
    for document in run.of("deepspeed"):
        if document.get("gradient_clipping") or not is_whole(document):
            continue
        taken = run.effective("deepspeed", "gradient_clipping")
        if not taken.known or taken.value == asked.value:
            return
        added = None if document.is_view else document.added("gradient_clipping", "auto")
        yield Finding(
            f"max_grad_norm {asked.value} is unused: DeepSpeed clips to {taken.value or 'nothing'}",
            (asked.label("not used"), document.lacking("gradient_clipping")),
            (f"gradient_clipping is left out, and {taken.by} is {taken.value}",),
            'write "gradient_clipping": "auto" in the DeepSpeed file',
            Fix((added,), "unsafe") if added else None,
        )


_TESTED: Final = frozenset({"adam", "adamw", "fusedadam", "cpuadam", "adagrad", "muon"})
"""Optimizers that ZeRO accepts. Muon is one since DeepSpeed builds it (0.17.6); before, DeepSpeed
knows no optimizer of that name."""
_OWN: Final = frozenset({"lion"})
_CONSENT: Final = "zero_allow_untested_optimizer"


@rule("error", "init", consumers=("deepspeed",), reads=("deepspeed:optimizer.type",))
def untested_optimizer(run: LintContext) -> Iterator[Finding]:
    """ZeRO accepts the optimizer only with `zero_allow_untested_optimizer`."""
    stage = stage_of(run)
    consent = run.effective("deepspeed", _CONSENT)
    kind = run.said("deepspeed", "optimizer.type")
    if kind is None or stage.value not in (1, 2, 3) or consent.value is True:
        return
    if not isinstance(kind.value, str) or kind.value.lower() in _TESTED or is_of_nobody(run, kind):
        return
    edit = kind.document.added(_CONSENT, True)
    if kind.value.lower() in _OWN:
        yield Finding(
            f"whether the script builds {kind.value} itself, which ZeRO refuses without {_CONSENT}",
            (kind.label("DeepSpeed's own is taken"),),
            ("DeepSpeed accepts its own Lion, but no other library's",),
            f"write {_CONSENT}: true at the top",
            certain=False,
        )
        return
    yield Finding(
        f"ZeRO is not tested with {kind.value}, and {_CONSENT} is not true",
        (kind.label("refused"), *also(stage.place)),
        (),
        f"write {_CONSENT}: true at the top",
        Fix((edit,), "safe") if edit else None,
    )


_DTYPE: Final = "data_types.grad_accum_dtype"
_WORDS: Final = {"fp16": "fp16", "bf16": "bf16", "fp32": "fp32", "float16": "fp16"} | {
    "bfloat16": "bf16",
    "float32": "fp32",
    "half": "fp16",
    "float": "fp32",
}
_MOVED: Final[dict[tuple[str, str], tuple[tuple[int, ...], tuple[int, ...] | None]]] = {
    ("bf16", "fp32"): ((0, 18), None),
    ("bf16", "bf16"): ((0,), (0, 17)),
}
"""Dtypes of (model, sum) that only some releases refuse: the first release that does, and the first
that no longer does."""
_UNNAMED: Final = (
    "the version of deepspeed is not given: 0.14 to 0.17 sum the gradients of bf16 in fp32, "
    "and refuse bf16 up to 0.16"
)


@rule("error", "init", consumers=("deepspeed",), reads=(f"deepspeed:{_DTYPE}",))
def gradient_dtype_without_zero(run: LintContext) -> Iterator[Finding]:
    """Gradients are accumulated in another dtype than the model's, which only ZeRO supports."""
    stage, asked = stage_of(run), run.effective("deepspeed", _DTYPE)
    if stage.value != 0 or asked.place is None or not isinstance(asked.value, str):
        return
    dtype, summed = _model_dtype(run), _WORDS.get(asked.value.removeprefix("torch."))
    if dtype is None or summed is None or not _is_refused(run, dtype, summed):
        return
    is_open = (dtype, summed) in _MOVED and not run.release("deepspeed").is_named
    yield Finding(
        f"gradients in {summed} of a model in {dtype} need ZeRO, and the stage is 0",
        (asked.place.label("refused"), *also(stage.place)),
        (
            "without ZeRO gradients are summed in the dtype of the model",
            *((_UNNAMED,) if is_open else ()),
        ),
        f"use stage 1, or remove {_DTYPE}",
        severity="warning" if is_open else None,
    )


def _is_refused(run: LintContext, dtype: str, summed: str) -> bool:
    release = run.release("deepspeed").version.release[:2]
    since, before = _MOVED.get((dtype, summed), ((0,), None))
    is_mixed = summed != dtype or before is not None
    return is_mixed and since <= release and (before is None or release < before)


def _model_dtype(run: LintContext) -> str | None:
    on = {dtype: run.effective("deepspeed", f"{dtype}.enabled") for dtype in ("bf16", "fp16")}
    if not all(each.known for each in on.values()):
        return None
    return next((dtype for dtype, each in on.items() if each.value is True), "fp32")
