"""Settings that classes of NeMo AutoModel refuse, and a section without effect."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.training_loop import is_number, is_whole
from tunec.compiler.lints.rows import Form, Row, found, reads_of, rows
from tunec.compiler.lints.rule import Finding, rule

_KIND: Final = "nemo-automodel"
_together: Final = Form(_KIND, "{0.path} is refused beside {1.path}")
_MATCHER: Final = "ModuleMatcher takes one of the ways to name layers: ValueError"
_ONE: Final = "remove one of the two"
_ROWS: Final = (
    _together("peft.target_modules", "peft.exclude_modules", _MATCHER, _ONE),
    _together("peft.match_all_linear=true", "peft.target_modules", _MATCHER, _ONE),
    _together("peft.match_all_linear=true", "peft.exclude_modules", _MATCHER, _ONE),
    _together("qat.enabled=true", "peft{}", "QAT with PEFT is not supported: ValueError", _ONE),
    Row(
        f"{_KIND}:distributed.pp_size>1",
        "{0.path} {0.value} is refused without distributed.pipeline",
        "refused",
        "stages need a schedule: ValueError",
        "write a section distributed.pipeline; an empty one takes the defaults",
        beside=("no distributed.pipeline",),
    ),
    Row(
        f"{_KIND}:distributed._target_~nvfsdp",
        "{0.path} names a module that NeMo AutoModel no longer has",
        "not found",
        "each _target_ is imported while the file is read: ImportError",
        "write `strategy: megatron_fsdp` in its place",
        consequence="parse",
    ),
    Row(
        f"{_KIND}:lr_scheduler.lr_warmup_steps<1 & lr_scheduler.lr_warmup_steps>0",
        "{0.path} {0.value} is no number of steps",
        "refused",
        "a share of the steps is refused: ValueError",
        "write a whole number",
        since="nemo-automodel>=0.6",
    ),
    Row(
        f"{_KIND}:step_scheduler.num_epochs|step_scheduler.max_steps|"
        "step_scheduler.val_every_steps|step_scheduler.ckpt_every_steps|"
        "step_scheduler.log_remote_every_steps<=0",
        "{0.path} {0.value} is refused",
        "refused",
        "StepScheduler takes numbers above 0: ValueError",
        "write 1 or more, or leave it out",
    ),
    Row(
        f"{_KIND}:checkpoint.max_recent_checkpoints<1",
        "{0.path} {0.value} is refused",
        "refused",
        "CheckpointingConfig takes a number from 1 on, or none: ValueError",
        "write 1 or more, or leave it out",
    ),
    Row(
        f"{_KIND}:checkpoint.model_save_format!=safetensors|torch_save",
        "{0.path} {0.value} is refused",
        "refused",
        "CheckpointingConfig knows safetensors and torch_save: AssertionError",
        "write safetensors",
    ),
)

_NUMBERS: Final = (
    *("step_scheduler.global_batch_size", "step_scheduler.local_batch_size", "peft.target_modules"),
    *("lr_scheduler.min_lr", "lr_scheduler.init_lr", "lr_scheduler.lr_warmup_steps"),
    *("distributed.pp_size", "distributed.pipeline.pp_microbatch_size"),
)


@rule(
    "error",
    "init",
    consumers=(_KIND,),
    reads=(*reads_of(_ROWS), *(f"{_KIND}:{key}" for key in _NUMBERS)),
    hardware=True,
)
def setting_refused_by_nemo_automodel(run: LintContext) -> Iterator[Finding]:
    """A setting, or two together, that a class refuses in its constructor."""
    yield from found(_ROWS, run)
    for document in run.of(_KIND):
        yield from _shares(run, document)
        yield from _stages(document)
        yield from _rates(document)
        yield from _names(document)


_GLOBAL, _MICRO = "step_scheduler.global_batch_size", "step_scheduler.local_batch_size"


def _shares(run: LintContext, document: Document) -> Iterator[Finding]:
    """A global batch that does not divide into micro batches of all data ranks."""
    at = document.get(_GLOBAL) or document.get(_MICRO)
    batch, micro = document.value(_GLOBAL, 32), document.value(_MICRO, 1)
    world = run.value("parallel.world")
    split = [
        document.value(f"distributed.{name}", 1) or 1 for name in ("tp_size", "pp_size", "cp_size")
    ]
    if at is None or not all(map(is_whole, (batch, micro, *split))) or micro < 1 or batch < 1:
        return
    width = 1
    for each in split:
        width *= each
    ranks = max(world // width, 1) if is_whole(world) and width > 0 else 1
    if batch % (micro * ranks):
        yield Finding(
            f"a batch of {batch} has no equal parts for {ranks} ranks of {micro}",
            (at.label("refused"),),
            ("StepScheduler divides it: ValueError",),
            f"write a multiple of {micro * ranks} as {_GLOBAL}",
        )


_STAGES, _STEP = "distributed.pp_size", "distributed.pipeline.pp_microbatch_size"


def _stages(document: Document) -> Iterator[Finding]:
    """A local batch that is cut into fewer micro batches than there are stages."""
    stages, step = document.value(_STAGES, 1), document.value(_STEP, 1)
    local = document.value(_MICRO, 1)
    at = document.get(_MICRO) or document.get(_STAGES)
    if at is None or not all(map(is_whole, (stages, step, local))) or stages < 2 or step < 1:
        return
    if local % step or local // step < stages:
        yield Finding(
            f"a local batch of {local} gives {stages} stages {local / step:g} micro batches",
            (at.label("refused"), *also(document.get(_STAGES)), *also(document.get(_STEP))),
            ("each stage works on a micro batch of its own: AssertionError, or ValueError",),
            f"write a multiple of {step} from {stages * step} on as {_MICRO}",
        )


_WHOLE: Final = ("lm_head",)
"""Layers whose full path is a name."""


def _names(document: Document) -> Iterator[Finding]:
    """Targets of adapters that are plain names, although full paths are compared."""
    at = document.get("peft.target_modules")
    if at is None:
        return
    said = at.value if isinstance(at.value, list) else [at.value]
    for name in said:
        if isinstance(name, str) and name not in _WHOLE and not {"*", "."} & {*name}:
            yield Finding(
                f"{at.path} `{name}` matches no layer",
                (at.label("compared with whole paths"),),
                ("where nothing is matched, nothing is trained: ValueError of the optimizer",),
                f"write `*.{name}`",
            )


_LR: Final = "optimizer.lr"


def _rates(document: Document) -> Iterator[Finding]:
    """Learning rates or steps in the wrong order."""
    rate, least = document.get(_LR), document.get("lr_scheduler.min_lr")
    first, most = document.get("lr_scheduler.init_lr"), document.get("lr_scheduler.max_lr")
    high = most if most is not None and most.value is not None else rate
    for low in (least, first):
        if low is not None and high is not None and _is_above(low, high.value):
            yield _above(low, high, "the rate at its highest: AssertionError")
    rises = document.get("lr_scheduler.lr_warmup_steps")
    last = document.get("lr_scheduler.lr_decay_steps") or document.get("step_scheduler.max_steps")
    if rises is not None and last is not None and _is_above(rises, last.value, even=True):
        yield _above(rises, last, "the steps after which the rate has fallen: AssertionError")


def _is_above(place: Place, other: Any, *, even: bool = False) -> bool:
    if not (is_number(place.value) and is_number(other)):
        return False
    return bool(float(place.value) > float(other) or (even and float(place.value) == float(other)))


def _above(low: Place, high: Place, why: str) -> Finding:
    return Finding(
        f"{low.path} {low.value} does not lie below {high.path} {high.value}",
        (low.label("refused"), *also(high)),
        (f"it has to lie below {why}",),
        "write a smaller number",
    )


SECTION_UNREAD_BY_NEMO_AUTOMODEL: Final = rows(
    "section-unread-by-nemo-automodel",
    "note",
    "silent",
    consumers=(_KIND,),
    rows=(
        Row(
            f"{_KIND}:step_scheduler.max_steps>0",
            "training ends after the tenth epoch if max_steps {0.value} are not reached by then",
            "num_epochs is 10",
            "num_epochs is 10 unless it is written, and whichever comes first ends the training",
            "write num_epochs: null to let max_steps decide",
            beside=("no step_scheduler.num_epochs",),
        ),
        Row(
            f"{_KIND}:rng.seed!=42",
            "NeMo AutoModel does not read {0.path} {0.value}",
            "nothing reads this section",
            "the recipe takes `seed` at the top, which is 42 by default",
            "write `seed` at the top",
            beside=("no seed",),
        ),
        Row(
            f"{_KIND}:distributed.pipeline{{}}",
            "NeMo AutoModel does not read {0.path} without pipeline stages",
            "left out",
            "it holds the schedule of stages, of which pp_size gives one by default",
            "write distributed.pp_size above 1, or remove the section",
            beside=("no distributed.pp_size>1",),
            at_key=True,
        ),
        *(
            Row(
                f"{_KIND}:{section}{{}}",
                "NeMo AutoModel does not read {0.path}",
                "nothing reads this section",
                "the recipe reads `distributed` alone",
                f"write its settings below {home}",
                at_key=True,
            )
            for section, home in (
                ("distributed_config", "distributed"),
                ("moe_config", "distributed.moe"),
                ("autopipeline", "distributed.pipeline"),
            )
        ),
        Row(
            f"{_KIND}:moe_config.activation_checkpointing=true",
            "NeMo AutoModel does not read {0.path}, and recomputes nothing",
            "nothing reads this section",
            "the recipe reads `distributed` alone",
            "write distributed.activation_checkpointing: true",
            beside=("no distributed.activation_checkpointing",),
            severity="warning",
        ),
    ),
)
