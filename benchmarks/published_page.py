"""The part of docs/memory-accuracy.md about published measurements on real devices."""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from tunec.schemas.units import format_bytes

sys.path.append(str(Path(__file__).parents[1] / "tests/analyses/memory"))
from fit_margin import fitted, judged  # type: ignore[import-not-found]
from measurements import (  # type: ignore[import-not-found]
    UNUSABLE,
    Measurement,
    measurements,
    quantile,
)
from test_measured import (  # type: ignore[import-not-found]
    ABOVE_THE_BOUND,
    ON_KNOWN_DEVICES,
    REFUSED_THOUGH_THEY_RAN,
    RUN_THOUGH_THEY_FAILED,
    WIDE_OF_THE_MARK,
    needs_more,
)
from test_published import glm_4v, minicpm_offloaded  # type: ignore[import-not-found]

_HEAD: Final = """\
## Against published measurements

Runs that others measured on real devices, each computed from what its publication says
(`tests/analyses/memory/measurements.py` builds them, `measured.jsonl` names repository, commit and
path). Nothing in the account is fitted to allocated bytes. The bound on what nvidia-smi shows is
fitted to every second one of the first readings of each source, and judged by the others and by all
that were added later; which is which is a field of the row, given when the row was added. The
estimate behind the bound was chosen after one of 26 readings had been above the 95 % quantile that
stood there before. Some terms of the account were found by rows that it missed: what the frozen
units of FSDP 1 hold back (LoRA of Mistral and Llama on several devices), that experts were linear
layers before transformers 5, which bitsandbytes quantises, that FSDP 1 makes no copy of what it
does not split, and tables of rotary positions in every layer (Mixtral before transformers 4.48).
All were then shown without a device: the first by torch's own FSDP
(`tests/analyses/memory/test_fsdp.py`), the others in the sources. Later rows found three more: what
the softmax of eager attention works in while it is differentiated (61 peaks on a T4, and then
`tests/analyses/memory/test_eager.py`), the pinned gradients that FSDP 1 keeps on the host for
frozen units too, and, in the bound, parameters that ZeRO-3 fetches from the host ahead of the
device. The last found the dropout of base models (`tests/analyses/memory/test_dropout.py` holds it
against traces), the fp32 gradients that DeepSpeed's own Adam keeps beside their flat copy without
sharding, heads that stage 3 fetches although they are above its limit of live parameters, and two
copies of ZeRO's flat parts in the step of torch's loop, or of its foreach kernels before torch 2.1.
Then Liger's norms and gated products, which its loss brings with it: an allocator had reserved 7 %
less than the account said. And inputs that 4-bit products of bitsandbytes before 0.43.2 keep, as a
trace with such products shows too. What a frozen head has read, which the model holds until its
loss is there, was found by traces; the peaks of LoRA and QLoRA on one device, 0.6 to 1.1 % above
the account before, are 0.1 % above it since. One share of the requirement is fitted to how two runs
ended (`verdict_split`): what fragmentation takes under FSDP 1.
"""


def published_lines() -> Iterator[str]:
    """Lines of the section."""
    every: Sequence[Measurement] = measurements()
    yield _HEAD
    yield from _summary(every)
    yield from _bound()
    yield from _verdicts()
    yield from _by_kind(every)
    yield from _exceptions()
    yield from _rows(every)
    yield from _makers()
    yield from _unusable()


def _summary(every: Sequence[Measurement]) -> Iterator[str]:
    yield "| allocated bytes | rows | median | 95th percentile | largest |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for words, confidence in (("configuration exact", "A"), ("with a field inferred too", "AB")):
        found = [
            abs(one.account.peak_bytes / one.allocated - 1)
            for one in every
            if one.allocated is not None and one.row["confidence"] in confidence
        ]
        figures = median(found), quantile(found, 0.95), max(found)
        shown = " | ".join(f"{100 * each:.1f} %" for each in figures)
        yield f"| {words} | {len(found)} | {shown} |"
    yield ""


def _bound() -> Iterator[str]:
    shares = fitted()
    rest = judged(shares)
    above = sum(by > 0 for by in rest.values())
    names = {
        "packed": "one device, every batch of one length",
        "several": "several devices, every batch of one length",
        "padded": "batches of different length",
    }
    words = "; ".join(f"{names[kind]}: {100 * share:.0f} %" for kind, share in shares.items())
    yield (
        f"Bound on a reading, above peak, context and NCCL: {words}. "
        f"Of {len(rest)} readings that judge it, {above} lie above."
    )
    yield ""


def _verdicts() -> Iterator[str]:
    failed = [one for one in ON_KNOWN_DEVICES if one.ran_out and one.judges_verdict]
    right = sum(needs_more(one) for one in failed)
    ran = [one for one in ON_KNOWN_DEVICES if not one.ran_out]
    let = sum(not needs_more(one) for one in ran)
    yield (
        f"Of {len(failed)} runs that failed for want of memory {right} are refused; of {len(ran)} "
        f"that ran, {let} are let run."
    )
    yield ""


def _by_kind(every: Sequence[Measurement]) -> Iterator[str]:
    kinds: dict[str, list[Measurement]] = {}
    for one in every:
        kinds.setdefault(_kind(one), []).append(one)
    over = judged(fitted())
    yield "| kind | allocated: rows, median | readings below the bound | refused | let run |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for name in sorted(kinds):
        yield f"| {name} | {' | '.join(_figures(kinds[name], over))} |"
    yield ""


def _kind(one: Measurement) -> str:
    """The kind of training; state on the host is one kind, and so is each other kind of model."""
    known = one.account
    workload, layout = known.workload, known.layout
    moved = {layout.zero.offload_optimizer, layout.zero.offload_param} != {"none"}
    if workload.architecture.kind != "causal-lm":
        return str(workload.architecture.kind)
    if moved or layout.fsdp.offload_params:
        return "offload"
    packed = "QLoRA and int8" if workload.quantization.format != "none" else "LoRA"
    return "full" if workload.adapter.kind == "none" else packed


def _figures(found: Sequence[Measurement], over: dict[str, float]) -> Iterator[str]:
    given = [m for m in found if m.allocated is not None]
    sizes = [abs(m.account.peak_bytes / m.allocated - 1) for m in given]
    yield f"{len(sizes)}, {100 * median(sizes):.1f} %" if sizes else "-"
    readings = [over[m.id] <= 0 for m in found if m.id in over]
    yield _of(readings)
    known = [m for m in found if m in ON_KNOWN_DEVICES]
    yield _of([needs_more(m) for m in known if m.ran_out and m.judges_verdict])
    yield _of([not needs_more(m) for m in known if not m.ran_out])


def _of(right: Sequence[bool]) -> str:
    return f"{sum(right)} of {len(right)}" if right else "-"


def _exceptions() -> Iterator[str]:
    yield "Wide of the mark, by name:"
    yield ""
    for name, why in WIDE_OF_THE_MARK.items():
        yield f"- {name}, allocated bytes missed by more than 8 %: {why}"
    for name, why in REFUSED_THOUGH_THEY_RAN.items():
        yield f"- {name}, refused though it ran: {why}"
    for name, why in RUN_THOUGH_THEY_FAILED.items():
        yield f"- {name}, let run though it failed: {why}"
    for name, why in ABOVE_THE_BOUND.items():
        yield f"- {name}, a reading above the bound: {why}"
    yield ""


def _rows(every: Sequence[Measurement]) -> Iterator[str]:
    yield "| row | model | run | measured | account | error | required | used to |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: | --- |"
    for one in every:
        known = one.account
        size = one.allocated or one.reading
        shown = format_bytes(size) if size else ("out of memory" if one.ran_out else "ran")
        error = f"{100 * (known.peak_bytes / one.allocated - 1):+.1f} %" if one.allocated else "-"
        split = {"fit": "fit", "judge": "judge"}.get(str(one.row.get("reading_split")), "judge")
        metric = one.row["metric"] if size else ""
        yield (
            f"| {one.id} | {one.row['model'].rpartition('/')[2]} | {_run(one.row)} "
            f"| {shown} {metric} | {format_bytes(known.peak_bytes)} | {error} "
            f"| {format_bytes(known.required_bytes)} | {split} |"
        )
    yield ""


def _run(row: dict[str, Any]) -> str:
    words = [row["method"], row.get("quant") or "", f"batch {row['micro_batch']}"]
    words += [f"sequence {row['seq_len']}", "checkpointed" if row["grad_ckpt"] else ""]
    parallel = row["parallel"]
    words += [f"{parallel['gpus']} x {row.get('gpu')}"]
    words += [parallel["strategy"] if parallel["gpus"] > 1 else "", row.get("kernels") or ""]
    return " ".join(each for each in words if each and each != "none")


def _makers() -> Iterator[str]:
    """The published tables that differ from the requirement by more than the allocator's slack."""
    yield "### Tables of makers that show what a driver shows"
    yield ""
    yield (
        "MiniCPM-Llama3-V-2_5 under ZeRO-3 with both offloads (finetune/readme.md) and GLM-4V-9B "
        "with adapters in its tower (finetune_demo/README_en.md) are published as one number, "
        "nvidia-smi's. It lies between what the run requires and what its allocator may keep. An "
        "image is taken as nine slices and its overview; MiniCPM's tower makes its attention "
        "scores as tensors (`init_vision_module`), which the account follows."
    )
    yield ""
    for name, known, published in (
        ("MiniCPM LoRA", minicpm_offloaded(trained=False), "13.1 to 14.4 GiB"),
        ("MiniCPM full", minicpm_offloaded(trained=True), "15.6 to 16.0 GiB"),
        ("GLM-4V LoRA", glm_4v(1), "75 GB (69.8 GiB)"),
    ):
        terms = ", ".join(f"{term} {format_bytes(size)}" for term, size in known.terms.items())
        yield (
            f"- {name}, published {published}: {terms}; peak {format_bytes(known.peak_bytes)}, "
            f"required {format_bytes(known.required_bytes)}, shown at most "
            f"{format_bytes(known.reading_bytes)}"
        )
    yield ""


def _unusable() -> Iterator[str]:
    groups = json.loads(UNUSABLE.read_text("utf-8"))
    total = sum(group["number"] for group in groups)
    yield "### Rows that no account can be compared with"
    yield ""
    yield f"{total} further rows were read and not used, for these reasons:"
    yield ""
    yield "| source | rows | why | which |"
    yield "| --- | ---: | --- | --- |"
    for group in groups:
        rows = ", ".join(group["rows"])
        yield f"| {group['source']} | {group['number']} | {group['why']} | {rows} |"
    yield ""
