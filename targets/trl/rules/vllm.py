"""Rules about vLLM in training."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.facts.precision import sharded_by_fsdp
from tunec.compiler.lints.facts.training_loop import GROUPED, grouped, preferences, real, trl, whole
from tunec.compiler.lints.rule import Finding, rule

_HALF: Final = 2
"""The fewest bytes of a parameter: TRL trains in bf16 or in fp32."""
_SHARE: Final = "vllm_gpu_memory_utilization"


@rule("error", "out-of-memory", consumers=("trl",), reads=grouped(_SHARE), hardware=True)
def engine_leaves_no_room(run: LintContext) -> Iterator[Finding]:
    """vLLM reserves so much of a device that the policy does not fit beside it."""
    device, model = run.environment.weakest, run.model
    if device is None or model is None or _is_split(run):
        return
    weights = model.architecture.parameters * _HALF
    for document, method in preferences(run):
        share = trl(document, _SHARE)
        number = real(share.value) if share is not None else None
        if share is None or number is None or method not in GROUPED or _sleeps(document):
            continue
        taken = int(number * device.memory)
        if not 0 < number <= 1 or not _is_beside(run, document):
            continue
        still = weights if taken + weights > device.memory else _still(run, weights)
        if taken + still > device.memory:
            yield _no_room(share, (taken, still, device.memory), device.title, still > weights)


def _still(run: LintContext, weights: int) -> int:
    """Bytes that the policy holds between steps, by the account; its weights if that is unknown."""
    from tunec.compiler.lints.facts.memory.estimate import estimate

    found = estimate(run)
    return weights if found is None or found.is_assumed else max(weights, found.still_bytes)


def _is_split(run: LintContext) -> bool:
    """Whether each device holds a part of the policy, or a quantized form of it."""
    stage = run.value("zero.stage")
    packed = run.value("quantization.format", "none") != "none"
    return packed or stage == 3 or sharded_by_fsdp(run) is not None


def _is_beside(run: LintContext, document: Document) -> bool:
    """Whether vLLM runs in the training processes."""
    used, mode = trl(document, "use_vllm"), trl(document, "vllm_mode")
    if used is None or used.value is not True:
        return False
    return mode.value == "colocate" if mode is not None else bool(run.runs("trl>=1"))


def _sleeps(document: Document) -> bool:
    at = trl(document, "vllm_enable_sleep_mode")
    return at is not None and at.value is True


def _no_room(share: Place, sizes: tuple[int, int, int], device: str, has_states: bool) -> Finding:
    taken, still, have = sizes
    gib = 2**30
    what = "weights and states" if has_states else "weights"
    rest = "activations come" if has_states else "gradients, states and activations come"
    return Finding(
        f"vLLM takes {taken / gib:.1f} GiB, the policy's {what} {still / gib:.1f} GiB, of "
        f"{have / gib:.1f} GiB",
        (share.label("of the whole device"),),
        (f"on {device}; {rest} on top",),
        "write 0.3, or vllm_enable_sleep_mode: true, or generate on devices of its own",
        sum=(Term("vLLM", taken), Term(f"{what} of the policy", still)),
    )


_APART: Final = "trl>=0.14,<0.16"
"""Releases in which the main process starts vLLM on a device that does not train."""


@rule("error", "init", consumers=("trl",), reads=grouped("use_vllm"), hardware=True)
def no_device_left_for_vllm(run: LintContext) -> Iterator[Finding]:
    """Every device trains, and vLLM needs one of its own."""
    cluster = run.environment.cluster
    if not run.runs(_APART) or cluster is None or len(cluster.nodes) != 1:
        return
    have = cluster.nodes[0].device_count
    for document, method in preferences(run):
        used = trl(document, "use_vllm")
        if method == "grpo" and used is not None and used.value is True:
            yield from _device_of_engine(run, document, have)


def _device_of_engine(run: LintContext, document: Document, have: int) -> Iterator[Finding]:
    used, named = trl(document, "use_vllm"), trl(document, "vllm_device")
    world = run.world
    count = world.value if world is not None and isinstance(world.value, int) else None
    word = str(named.value) if named is not None else "auto"
    if used is None or count is None:
        return
    number = count if word == "auto" else _number(word)
    if number is None or (count <= number < have):
        return
    place = run.place(world) if world is not None else None
    is_gone = number >= have
    yield Finding(
        f"vLLM requests device {number} of {have}"
        + ("" if is_gone else f", on which one of {count} processes trains"),
        ((named or used).label("a device of its own"), *also(place, "these train")),
        (f"{count} processes take devices 0 to {count - 1}",),
        f"start {have - 1} processes, or use TRL 0.16 and later with a server",
        severity=None if is_gone else "warning",
        consequence=None if is_gone else "out-of-memory",
    )


def _number(word: str) -> int | None:
    kind, _, number = word.partition(":")
    return int(number) if kind == "cuda" and number.isdecimal() else None


@rule("warning", "slow", consumers=("trl",), reads=("grpo:*",))
def vllm_keys_without_vllm(run: LintContext) -> Iterator[Finding]:
    """Settings of vLLM have no effect, since vLLM is not used."""
    for document in run.of("grpo"):
        switch = document.get("use_vllm")
        if document.is_view or document.hides("use_vllm") or (switch and switch.value):
            continue
        found = [at for key, at in document.found.items() if key.startswith("vllm_")]
        found = [at for at in found if at.value not in (None, False)]
        if found:
            yield Finding(
                f"{found[0].path} does nothing: use_vllm is off",
                (
                    *(at.key_label("not used", primary=not n) for n, at in enumerate(found)),
                    *also(switch),
                ),
                ("completions are generated by the trained model itself, many times slower",),
                "write use_vllm: true",
                severity="note" if switch is not None else None,  # turned off on purpose
            )


_KINDS: Final = ("grpo", "axolotl")


@rule("error", "init", consumers=("trl",), reads=grouped("use_vllm"))
def vllm_width_does_not_divide(run: LintContext) -> Iterator[Finding]:
    """The tensor parallel size of vLLM does not divide the processes, or its share is refused."""
    for document, name in preferences(run):
        if name != "grpo" or document.kind not in _KINDS or not _is_beside(run, document):
            continue
        yield from _width(run, document)
        share = trl(document, "vllm_gpu_memory_utilization")
        number = None if share is None else real(share.value)
        if share is not None and number is not None and not 0 < number <= 1:
            yield Finding(
                f"vllm_gpu_memory_utilization {share.value} is no share of the memory",
                (share.label("refused by vLLM"),),
                ("above 0 and at most 1",),
                f"write {number / 100:g}" if 1 < number <= 100 else "write 0.3",
            )


def _width(run: LintContext, document: Document) -> Iterator[Finding]:
    at, world = trl(document, "vllm_tensor_parallel_size"), run.value("parallel.world")
    width = None if at is None else whole(at.value)
    if at is None or not width or not isinstance(world, int) or world % width == 0:
        return
    fitting = max(each for each in range(1, min(width, world) + 1) if world % each == 0)
    yield Finding(
        f"vllm_tensor_parallel_size {width} does not divide {world} processes",
        (at.label("refused"),),
        ("each group of that many processes holds one engine, and every process is in a group",),
        f"write {fitting}",
        sum=(Term("processes", world, ""), Term("of each engine", width, "")),
    )
