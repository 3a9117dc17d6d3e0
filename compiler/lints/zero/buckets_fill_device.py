"""The buffers for gradients take a large share of the device's memory."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label, Term
from tunec.compiler.lints.batch.counts import is_number
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import stage_of

_BUCKET: Final = "zero_optimization.reduce_bucket_size"
_OVERLAP: Final = "zero_optimization.overlap_comm"
_SHARE: Final = 0.2
"""From this share of the device on, a finding: the default (500 million elements, one buffer, 2
bytes) is 0.93 GiB, 6 % of the smallest device that is trained on."""


def _check(run: Run) -> Iterator[Finding]:
    stage, bucket = stage_of(run), run.effective("deepspeed", _BUCKET)
    contiguous = run.effective("deepspeed", "zero_optimization.contiguous_gradients")
    overlap, device = run.effective("deepspeed", _OVERLAP), run.environment.weakest
    if stage.value not in (1, 2, 3) or device is None or not is_number(bucket.value):
        return
    if contiguous.value is not True or (bucket.place is None and overlap.place is None):
        return
    buffers = 2 if overlap.value is True and stage.value != 3 else 1
    taken = buffers * _width(run) * bucket.value
    if taken <= _SHARE * device.memory:
        return
    gib = 2**30
    yield Finding(
        f"reduce buckets take {taken / gib:.1f} GiB of {device.memory / gib:.1f} on {device.name}",
        tuple(_labels(bucket.place, overlap.place if buffers == 2 else None)),
        (
            "they are allocated whole, however few parameters are trained",
            "overlap_comm takes two at stages 1 and 2",
        ),
        "write a smaller reduce_bucket_size, as 50000000",
        sum=(
            Term("elements of a bucket", bucket.value, "elements"),
            Term("buffers", buffers, ""),
            Term("bytes of an element", _width(run), "bytes"),
        ),
        severity="warning" if taken < device.memory else None,
    )


def _width(run: Run) -> int:
    on = (run.effective("deepspeed", f"{dtype}.enabled").value for dtype in ("bf16", "fp16"))
    return 2 if True in on else 4


def _labels(*places: Place | None) -> Iterator[Label]:
    for number, place in enumerate(each for each in places if each is not None):
        yield place.label("" if number else "allocated on each device", primary=not number)


RULE = Rule(
    name="buckets-fill-device",
    severity="error",
    consequence="out-of-memory",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/zero/stage_1_and_2.py: "
            "torch.empty(reduce_bucket_size) once, twice with overlap_comm; stage3.py `__init__`: "
            "once"
        ),
    ),
    check=_check,
)
