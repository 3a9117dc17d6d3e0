"""Whether a run fits its devices."""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tunec.compiler.diagnostics.diagnostic import Label, Term
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place
from tunec.compiler.lints.facts.training_loop import strategy_of
from tunec.compiler.lints.neighbours import UNKNOWN
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.frozen import replace

if TYPE_CHECKING:
    from tunec.compiler.analyses.memory.account import Account
    from tunec.compiler.analyses.memory.workload import Workload
    from tunec.compiler.lints.facts.memory.estimate import Estimate


@rule("error", "out-of-memory", consumers=("torch",), hardware=True)
def device_memory_exceeded(run: LintContext) -> Iterator[Finding]:
    """The memory that the run needs does not fit its devices."""
    if run.environment.cluster is None or _only_serves(run):
        return
    from tunec.compiler.lints.facts.memory.estimate import estimate
    from tunec.compiler.lints.facts.memory.parameters import with_flag_settings

    run = with_flag_settings(run)
    if run.model is None:
        yield from _unknown_model(run)
        return
    found = estimate(run)
    if found is None:
        return
    is_known = _is_layout_known(run) and not found.is_assumed
    labels = (*_of_evaluation(run, found.account), *_labels(run, is_known=is_known))
    if not labels:
        return
    finding = _never_fits(found) if found.still_bytes > found.capacity else _no_fit(found)
    if finding is None:
        return
    if found.still_bytes > found.capacity and _may_be_sharded(run):
        notes = (*finding.notes, "unless accelerate launch shards it")
        finding = replace(finding, notes=notes, severity="warning")
    yield replace(finding, labels=labels, certain=is_known)


def _no_fit(found: "Estimate") -> Finding | None:
    """The finding if samples do not fit, or leave too little room; the caller adds labels."""
    peak, writes = found.account.peak_bytes, found.account.workload.evaluated is not None
    writes = writes and found.account.peak.evaluates
    if peak > found.capacity and (writes or found.knows_length):
        return (_writing if writes else _full_samples)(found)
    if found.still_bytes + found.beside_bytes > found.capacity:
        return _no_room(found, found.still_bytes, found.still_terms)
    if not found.knows_length:
        return None
    if peak + found.beside_bytes > found.capacity:
        return _no_room(found, peak, found.account.terms)
    return _near_the_limit(found) if found.account.required_bytes > found.capacity else None


def _only_serves(run: LintContext) -> bool:
    """Whether LLaMA-Factory's file requests no training, only chat or the merge of an adapter.

    llamafactory 0.9.4 examples/inference, examples/merge_lora.
    """
    own = run.of("llamafactory")
    return bool(own) and not any(each.value("stage") or each.value("do_train") for each in own)


_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")


def _unknown_model(run: LintContext) -> Iterator[Finding]:
    """Report that the memory of the named model is unknown."""
    name = run.model_name
    if name is None or not run.documents:
        return
    place = run.place(run.observed("model.path")) or run.said("trainer", "model_name_or_path")
    start = Label("reads them", run.documents[0].start(), "", True)
    is_name = _NAME.fullmatch(name) is not None
    yield Finding(
        UNKNOWN,
        (place.label("whether this fits is not known") if place is not None else start,),
        ("it is not in the catalogue, and no config.json of it is at hand",),
        f"`tunec card {name}` makes its card"
        if is_name
        else "`tunec card CONFIG` makes a card of its config.json; `--model` names what it is",
        certain=False,
        consequence="unclear",
    )


def _is_layout_known(run: LintContext) -> bool:
    """Whether a file sets the sharding of states; a launcher's file may still turn FSDP on."""
    from tunec.compiler.lints.facts.sharding import is_fully_sharded

    says_how = run.of("deepspeed", "accelerate") or is_fully_sharded(run)
    if run.of("llamafactory", "axolotl"):
        return True  # their own commands start processes that shard nothing unless the file asks
    if run.value("parallel.world") == 1 or says_how:
        return True
    return any(each.value("launcher") in ("torchrun", "deepspeed") for each in run.of("launch"))


def _may_be_sharded(run: LintContext) -> bool:
    """Whether LLaMA-Factory's file stands alone, for several devices, and names no sharding.

    llamafactory 0.9.4 examples/ascend/qwen3_full_sft_fsdp2.yaml is such a file.
    """
    is_alone = not run.of("launch", "accelerate", "deepspeed")
    return bool(run.of("llamafactory")) and is_alone and run.value("parallel.world") != 1


def _never_fits(found: "Estimate") -> Finding:
    from tunec.schemas.units import format_bytes

    return Finding(
        f"this needs {format_bytes(found.still_bytes)} on each {found.device}, which has "
        f"{format_bytes(found.capacity)}, whatever the samples",
        (),
        (
            "weights, gradients and optimizer states alone, in the cheapest reading of the files",
            *(("no file says what is trained, so all parameters are counted",) * found.is_assumed),
        ),
        "shard more (ZeRO stage 3), offload, quantise under an adapter, or use more devices",
        sum=tuple(Term(name, size) for name, size in found.still_terms.items()),
    )


def _no_room(found: "Estimate", taken: int, terms: Mapping[str, int]) -> Finding:
    """The finding if only the tensors fit; the caller adds labels."""
    from tunec.schemas.units import format_bytes

    account, left = found.account, format_bytes(found.capacity - taken)
    number = (
        account.layout.batch.evaluation if account.peak.evaluates else account.layout.batch.micro
    )
    samples = f"with {number} x {_sample(account.workload)}"
    return Finding(
        f"this leaves {left} of {format_bytes(found.capacity)} on each {found.device} "
        f"{'whatever the samples' if taken == found.still_bytes else samples}",
        (),
        (f"beside tensors a process takes {format_bytes(found.beside_bytes)}: {found.beside}",),
        "shard more (ZeRO stage 3), offload, take fewer or shorter samples, or use more devices",
        sum=tuple(Term(name, size) for name, size in terms.items()),
        severity="warning",
    )


def _near_the_limit(found: "Estimate") -> Finding:
    """The finding if all fits but the margin of allocator and collectives; the caller adds labels.

    compiler/analyses/memory/margin.py: a plan has to fit including the margin.
    """
    from tunec.schemas.units import format_bytes

    account = found.account
    batch, margin = account.layout.batch, account.margin
    number = batch.evaluation if account.peak.evaluates else batch.micro
    beside = ", ".join(f"{name} {format_bytes(size)}" for name, size in margin.items())
    return Finding(
        f"near the limit: {format_bytes(account.peak_bytes)} of {format_bytes(found.capacity)} on "
        f"each {found.device} with {number} x {_sample(account.workload)}",
        (),
        (f"beside tensors a plan counts {format_bytes(sum(margin.values()))}: {beside}",),
        "take fewer samples at once and accumulate more, shorten them, or recompute activations",
        sum=tuple(Term(name, size) for name, size in account.terms.items()),
        severity="warning",
    )


def _writing(found: "Estimate") -> Finding:
    from tunec.schemas.units import format_bytes

    account = found.account
    batch, asked = account.layout.batch, account.workload.evaluated
    beams = f" and {asked.beams} beams" if asked is not None and asked.beams > 1 else ""
    tokens = asked.tokens if asked is not None else 0
    return Finding(
        f"evaluation needs {format_bytes(account.peak_bytes)} of {format_bytes(found.capacity)} on "
        f"each {found.device} with {batch.evaluation} x {tokens} tokens{beams}",
        (),
        (f"at its peak ({account.peak_phase}), where answers are as long as they may be",),
        "take fewer samples at once (per_device_eval_batch_size), fewer beams, or shorter answers",
        sum=tuple(Term(name, size) for name, size in account.terms.items()),
        severity="warning",
    )


def _full_samples(found: "Estimate") -> Finding:
    from tunec.schemas.units import format_bytes

    account = found.account
    batch, evaluates = account.layout.batch, account.peak.evaluates
    what, number = ("evaluation", batch.evaluation) if evaluates else ("this", batch.micro)
    fewer = (
        "at once (per_device_eval_batch_size, 8 where it is left out), or shorten them"
        if evaluates
        else "at once and accumulate more, shorten them, or recompute activations"
    )
    why = _why_full(account.workload)
    longest = why or "where samples are as long as they may be"
    is_sure = why is not None and not evaluates and account.peak_bytes > _SURE * found.capacity
    return Finding(
        f"{what} needs {format_bytes(account.peak_bytes)} of {format_bytes(found.capacity)} on "
        f"each {found.device} with {number} x {_sample(account.workload)}",
        (),
        (f"at its peak ({account.peak_phase}), {longest}",),
        f"take fewer samples {fewer}",
        sum=tuple(Term(name, size) for name, size in account.terms.items()),
        severity=None if is_sure else "warning",
    )


_SURE: Final = 1.25
"""A run that needs this many times the memory fails: if a run's configuration is known, the account
misses no published peak by more (docs/memory-accuracy.md)."""


def _why_full(workload: "Workload") -> str | None:
    """Why every step has samples of full length; None: this depends on the data."""
    if workload.architecture.kind == "diffusion":
        return "which every picture takes"
    return "since packing fills every row" if workload.data.packing else None


def _sample(workload: "Workload") -> str:
    """A sample's size with its unit: tokens, or pixels for a denoiser."""
    data = workload.data
    if workload.architecture.kind == "diffusion":
        size = f"{data.image_width}x{data.image_height} pixels"
        return f"{data.frames} frames of {size}" if data.frames else size
    pictured = f", {data.image_tokens} of them a picture's" if data.image_tokens else ""
    return f"{data.sequence + data.image_tokens} tokens{pictured}"


def _of_evaluation(run: LintContext, account: "Account") -> tuple[Label, ...]:
    """Labels at the evaluation batch or at the switch for evaluation, if that is the peak."""
    if not account.peak.evaluates:
        return ()
    said = run.place(run.observed("batch.evaluation"))
    if said is not None:
        return (said.label("samples at once in evaluation"),)
    at = next((each for one in run.of("trainer") if (each := strategy_of(one)) is not None), None)
    number = account.layout.batch.evaluation
    return () if at is None else (at.label(f"evaluates, by default {number} samples at once"),)


def _labels(run: LintContext, *, is_known: bool) -> tuple[Label, ...]:
    """Labels where the batch, method and sharding are set, else at another known setting."""
    wanted = (
        ("batch.micro", "samples at once"),
        ("model.path", "the model"),
        ("adapter.kind", "what is trained"),
        ("zero.stage", "what is sharded"),
        ("data.sequence", "tokens of a sample"),
    )
    beside = (
        ("optimizer.name", "the optimizer's states"),
        ("precision.compute", "what it computes in"),
        ("batch.evaluation", "samples at once in evaluation"),
        ("activation_checkpointing.mode", "what is kept of the forward pass"),
    )
    places = _written(run, wanted) or (_written(run, beside)[:1] if is_known else [])
    return tuple(place.label(text, primary=at == 0) for at, (place, text) in enumerate(places))


def _written(run: LintContext, slots: tuple[tuple[str, str], ...]) -> list[tuple[Place, str]]:
    found = [(run.place(run.observed(slot)), text) for slot, text in slots]
    return [(place, text) for place, text in found if place is not None]
