"""Rules about ZeRO's buckets."""

import json
import re
from collections.abc import Iterator
from fractions import Fraction
from math import isfinite
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix, Label, Severity, Term
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place, also
from tunec.compiler.lints.facts.sharding import said_in, stage_of, zero_keys
from tunec.compiler.lints.facts.training_loop import is_number
from tunec.compiler.lints.rows import Mend, Row, rows
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.frozen import replace


@rule("error", "init", consumers=("deepspeed",), reads=zero_keys("allgather_bucket_size"))
def allgather_bucket_unusable(run: LintContext) -> Iterator[Finding]:
    """The allgather bucket has an odd size, which stages 1 and 2 refuse."""
    stage = stage_of(run)
    if stage.value not in (1, 2):
        return
    for place in said_in(run, ("allgather_bucket_size",)):
        if not is_number(place.value) or not isfinite(place.value):
            continue
        if place.value <= 0 or place.value % 2 == 0:
            continue
        yield Finding(
            f"allgather_bucket_size {place.value} is odd, and stage {stage.value} refuses it",
            (place.label("refused"), *also(stage.place)),
            ("the size of the bucket is aligned to 2 elements",),
            f"write {int(place.value) + 1}",
            Fix((place.replaced(int(place.value) + 1),), "safe"),
        )


_KEYS: Final = (
    "reduce_bucket_size",
    "stage3_prefetch_bucket_size",
    "stage3_param_persistence_threshold",
)
_COMPOSITE: Final = frozenset(
    {"idefics2", "llava", "llava_next", "video_llava", "vipllava"}
    | {"blip-2", "instructblip", "clip", "kosmos-2", "pix2struct"}
)
"""Configurations of transformers 4.44.2 with neither hidden_size nor hidden_sizes (each was built).
In most others the file's key has another name (d_model, n_embd), and hidden_size is there too."""

_IN_PARTS: Final = frozenset(
    {"encoder-decoder", "vision-encoder-decoder", "speech-encoder-decoder", "t5gemma", "t5gemma2"}
)
"""Configurations of transformers 5.23.0 with neither hidden_size nor hidden_sizes (each was built),
and without text_config."""
_BY_NAME: Final = (
    (re.compile(r"(?:\A|[/_-])(?:trocr|donut|nougat)(?:\Z|[/_-])"), "vision-encoder-decoder"),
    (re.compile(r"(?:\A|[/_-])t5-?gemma(?:\Z|[/_-])"), "t5gemma"),
)
"""The model_type in config.json of microsoft/trocr-*, naver-clova-ix/donut-*, facebook/nougat-* and
google/t5gemma-*, by patterns of the model's name."""
_FORMERLY: Final = "transformers<4.45"


@rule("error", "init", consumers=("transformers",), reads=zero_keys(*_KEYS))
def auto_buckets_need_hidden_size(run: LintContext) -> Iterator[Finding]:
    """Bucket sizes are `auto`, but the model's config has no `hidden_size` to derive them from."""
    said = [each for each in said_in(run, _KEYS) if each.value == "auto"]
    if not said or run.deepspeed_reader == "plain":
        return
    for name, family in _models(run):
        is_formerly = family in _COMPOSITE and run.runs(_FORMERLY) is not False
        if family not in _IN_PARTS and not is_formerly:
            continue
        if run.own.shows(_OWN_CLASS):
            continue  # LLaVA's own class has the config of the language model, with its width
        names = ", ".join(each.path.rpartition(".")[2] for each in said)
        yield Finding(
            f"{names} auto, and {name} ({family}) has no hidden_size at its top level",
            tuple(each.label("cannot be filled in", primary=each is said[0]) for each in said),
            (
                "the trainer takes hidden_size squared, 0.9 of that, and ten times hidden_size",
                "each of its parts has one, but the trainer does not look there"
                if family in _IN_PARTS
                else "releases from 4.45 on look into text_config too",
            ),
            "write numbers, as 16777216 for a width of 4096",
            severity="warning" if is_formerly and run.runs(_FORMERLY) is None else None,
        )


_OWN_CLASS: Final = re.compile(r"class Llava\w*\((?:\w+, )*\w+ForCausalLM")


def _models(run: LintContext) -> Iterator[tuple[str, str]]:
    """Name and model type of each known model: from a config among the files, or from its name."""
    for each in run.unread:
        if "model_type" in each.keys and each.name.endswith(".json"):
            try:
                found = json.loads(each.text)
            except ValueError:
                continue
            if isinstance(found, dict) and not found.get("hidden_size"):
                yield each.name, str(found.get("model_type"))
    name = run.model_name
    if run.model is not None:
        yield run.model.path, run.model.architecture.family
    elif name is not None:
        lower = name.lower()
        yield from ((name, family) for shape, family in _BY_NAME if shape.search(lower))


_AUTOMATIC_SHARE: Final = Fraction(9, 10)


@rule(
    "error",
    "init",
    consumers=("transformers<4.45",),
    reads=zero_keys("stage3_prefetch_bucket_size"),
)
def automatic_bucket_not_whole(run: LintContext) -> Iterator[Finding]:
    """The prefetch bucket size that the trainer computes is not an integer."""
    is_old, is_strict = run.runs("transformers<4.45"), run.runs("deepspeed>=0.15")
    said = [each for each in said_in(run, ("stage3_prefetch_bucket_size",)) if each.value == "auto"]
    if is_old is not True or is_strict is False or run.deepspeed_reader == "plain":
        return
    width = _automatic_width(run)
    if stage_of(run).value != 3 or (width is not None and width % 10 == 0):
        return
    for place in said:
        value = "" if width is None else f", {float(_AUTOMATIC_SHARE * width * width)}"
        yield Finding(
            f"the trainer fills stage3_prefetch_bucket_size in with a fraction{value}",
            (place.label("rejected once filled in"),),
            (
                "0.9 of hidden_size squared is whole only where hidden_size is a multiple of ten",
                "DeepSpeed rejects fractions from 0.15.0; the trainer rounds from 4.45.0",
            ),
            "write a whole number, as 15099494 for a width of 4096, or use transformers 4.45",
            severity=_bucket_severity(width, is_strict=is_strict is True),
        )


def _bucket_severity(width: int | None, *, is_strict: bool) -> Severity | None:
    """The finding's severity: an error only if both the model's width and the release are known."""
    if width is not None:
        return None if is_strict else "warning"
    return "warning" if is_strict else "note"


def _automatic_width(run: LintContext) -> int | None:
    """The model's hidden_size; None if the model is unknown or has several components."""
    model = run.model
    if model is None or model.components:
        return None
    return model.architecture.hidden


_BUCKET: Final = "zero_optimization.reduce_bucket_size"
_OVERLAP: Final = "zero_optimization.overlap_comm"
_FILL_SHARE: Final = 0.2
"""The share of the device's memory that is reported. The default (500 million elements, one buffer,
2 bytes) is 0.93 GiB, 6 % of the smallest device that is used for training."""


@rule(
    "error",
    "out-of-memory",
    consumers=("deepspeed",),
    reads=zero_keys("reduce_bucket_size", "overlap_comm"),
    hardware=True,
)
def buckets_fill_device(run: LintContext) -> Iterator[Finding]:
    """The buffers for gradients take a large share of the device's memory."""
    stage, bucket = stage_of(run), run.effective("deepspeed", _BUCKET)
    contiguous = run.effective("deepspeed", "zero_optimization.contiguous_gradients")
    overlap, device = run.effective("deepspeed", _OVERLAP), run.environment.weakest
    if stage.value not in (1, 2, 3) or device is None or not is_number(bucket.value):
        return
    if contiguous.value is not True or (bucket.place is None and overlap.place is None):
        return
    buffers = 2 if overlap.value is True and stage.value != 3 else 1
    taken = buffers * _fill_width(run) * bucket.value
    if taken <= _FILL_SHARE * device.memory:
        return
    gib = 2**30
    yield Finding(
        f"reduce buckets take {taken / gib:.1f} GiB of {device.memory / gib:.1f} on {device.name}",
        _labels(bucket.place, overlap.place if buffers == 2 else None),
        (
            "they are allocated whole, however few parameters are trained",
            "overlap_comm takes two at stages 1 and 2",
        ),
        "write a smaller reduce_bucket_size, as 50000000",
        sum=(
            Term("elements of a bucket", bucket.value, "elements"),
            Term("buffers", buffers, ""),
            Term("bytes of an element", _fill_width(run), "bytes"),
        ),
        severity="warning" if taken < device.memory else None,
    )


def _fill_width(run: LintContext) -> int:
    on = (run.effective("deepspeed", f"{dtype}.enabled").value for dtype in ("bf16", "fp16"))
    return 2 if True in on else 4


def _labels(bucket: Place | None, overlap: Place | None) -> tuple[Label, ...]:
    first, *rest = (each for each in (bucket, overlap) if each is not None)
    return (first.label("allocated on each device"), *(also(rest[0]) if rest else ()))


_SCATTERED: Final = Row(
    "deepspeed:prescale_gradients=true",
    "{0.key} {0.value} is refused at stage {1.value}",
    label="refused",
    why="with reduce_scatter, gradients are divided after the reduction",
    help="remove it, or write reduce_scatter: false in zero_optimization",
    mend=Mend("unsafe", remove=True),
    effective=(
        "deepspeed:zero_optimization.stage=2|3",
        "deepspeed:zero_optimization.reduce_scatter=true",
    ),
)

prescaled_gradients_refused = rows(
    "prescaled-gradients-refused",
    "error",
    "init",
    consumers=("deepspeed",),
    rows=(_SCATTERED, replace(_SCATTERED, when="deepspeed:gradient_predivide_factor!=1|1.0")),
)


_KEY: Final = "zero_optimization.stage3_param_persistence_threshold"
_LIMIT: Final = "zero_optimization.stage3_model_persistence_threshold"


@rule(
    "warning",
    "out-of-memory",
    consumers=("deepspeed",),
    reads=zero_keys("stage3_param_persistence_threshold"),
)
def persistence_keeps_model_whole(run: LintContext) -> Iterator[Finding]:
    """Most parameters are smaller than the threshold from which stage 3 shards them."""
    stage, threshold = stage_of(run), run.effective("deepspeed", _KEY)
    limit, model = run.effective("deepspeed", _LIMIT), run.model
    if stage.value != 3 or model is None or threshold.place is None:
        return
    if not is_number(threshold.value):
        return
    modules = model.architecture.modules
    total = sum(each.parameters for each in modules)
    small = sum(each.parameters for each in modules if _largest(each) < threshold.value)
    kept = min(small, limit.value) if is_number(limit.value) else small
    if 2 * kept <= total:
        return
    yield Finding(
        f"stage 3 keeps {kept / total:.0%} of {model.path} whole on every device",
        (
            threshold.place.label("parameters of fewer elements are not sharded"),
            *also(stage.place),
            *also(limit.place),
        ),
        ("a parameter below stage3_param_persistence_threshold is gathered once and kept",),
        'write "auto", or a number below the smallest matrix',
        sum=(
            Term("parameters kept whole", kept, "parameters"),
            Term("all parameters", total, "parameters"),
        ),
    )


def _largest(module: Any) -> int:
    """Elements of one weight of the module: DeepSpeed tests each parameter separately."""
    return int(module.parameters // max(module.copies, 1)) - int(module.bias)
