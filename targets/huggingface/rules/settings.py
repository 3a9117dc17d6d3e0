"""Rules about settings of the Trainer that conflict with the run or its hardware."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import did_you_mean, nearest, quoted
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import READ_ONCE, TRL, Document, Place, also
from tunec.compiler.lints.facts.lora import loras
from tunec.compiler.lints.facts.training_loop import arguments_of, engine_of
from tunec.compiler.lints.rows import Row, found, reads_of
from tunec.compiler.lints.rule import Finding, keys, rule
from tunec.compiler.lints.schemas import Schema, schemas
from tunec.schemas.frozen import replace

_ACCELERATOR_KEYS: Final = (
    *("split_batches", "dispatch_batches", "even_batches", "use_seedable_sampler"),
    *("non_blocking", "gradient_accumulation_kwargs", "use_configured_state"),
)
_OF_ACCUMULATION: Final = (
    *("num_steps", "adjust_scheduler", "sync_with_dataloader", "sync_each_batch"),
    "step_scheduler_with_optimizer",
)


@rule("error", "parse", consumers=("transformers",), reads=("trainer:accelerator_config",))
def accelerator_config_refused(run: LintContext) -> Iterator[Finding]:
    """accelerator_config has a key that accelerate does not know."""
    for document in run.of("trainer"):
        yield from _below(document, "accelerator_config", _ACCELERATOR_KEYS)
        inner = "accelerator_config.gradient_accumulation_kwargs"
        yield from _below(document, inner, _OF_ACCUMULATION)


def _below(document: Document, holder: str, known: tuple[str, ...]) -> Iterator[Finding]:
    held = document.get(holder)
    for name in arguments_of(held) or {}:
        place = document.get(f"{holder}.{name}") or held
        if place is None or name in known:
            continue
        near = nearest(name, known)[:1]
        yield Finding(
            f"{holder} has no key `{name}`",
            (place.label("refused") if place is held else place.key_label("refused"),),
            (),
            did_you_mean(near) or "remove it",
            Fix((place.renamed(near[0]),), "unsafe") if near and place is not held else None,
        )


_CPU_KEYS: Final = ("use_cpu", "no_cuda")


@rule(
    "warning",
    "slow",
    consumers=("transformers", "accelerate"),
    reads=keys("trainer|accelerate", *_CPU_KEYS),
    hardware=True,
)
def cpu_beside_accelerators(run: LintContext) -> Iterator[Finding]:
    """Training is to run on the CPU, but the machine has accelerators."""
    cluster = run.environment.cluster
    if cluster is None or cluster.device_count < 1:
        return
    for kind in ("trainer", "accelerate"):
        for key in _CPU_KEYS:
            for place in run.each(kind, key):
                if place.value is True:
                    yield Finding(
                        f"{key}: the {cluster.device_count} devices of {cluster.name} are not used",
                        (place.label("on the CPU"),),
                        (),
                        "remove it",
                        Fix((place.removed(),), "unsafe"),
                    )


_CONFIG: Final = "liger_kernel_config"
_KERNELS: Final = (
    *("rope", "cross_entropy", "fused_linear_cross_entropy", "rms_norm", "swiglu", "geglu"),
    "layer_norm",
)
_WHOLE: Final = f"{_CONFIG}.cross_entropy"
_FUSED: Final = f"{_CONFIG}.fused_linear_cross_entropy"
_ALONE: Final = "granite"
"""The model family whose fused loss is off by default."""


@rule("error", "silent", consumers=("transformers",), reads=(f"trainer:{_CONFIG}",))
def liger_settings_unusable(run: LintContext) -> Iterator[Finding]:
    """Settings of Liger's kernels are refused or never read."""
    for document in run.of("trainer"):
        config = document.get(_CONFIG)
        if config is None or not config.node.fields or document.is_view:
            continue
        switch = document.get("use_liger_kernel")
        if switch is None or switch.value is False:
            if "use_liger_kernel" not in document.unknown:
                yield _unread(config, switch)
            continue
        yield from _both_losses(run, document)
        for name in config.node.fields:
            place = document.get(f"{_CONFIG}.{name}")
            if place is not None and name not in _KERNELS:
                yield _unknown(place, str(name))


def _unread(config: Place, switch: Place | None) -> Finding:
    return Finding(
        f"{config.path} does nothing: use_liger_kernel is off",
        (config.key_label("not read"), *also(switch)),
        (),
        "write use_liger_kernel: true, or remove it",
        severity="warning",
    )


def _both_losses(run: LintContext, document: Document) -> Iterator[Finding]:
    whole, fused = document.get(_WHOLE), document.get(_FUSED)
    if whole is None or whole.value is not True or (fused is not None and fused.value is not True):
        return
    model = run.model.card if run.model is not None else None
    if fused is None and model is not None and _ALONE in str(model).lower():
        return
    yield Finding(
        "both cross entropies of Liger are on",
        (whole.label("one of the two"), *also(fused, "the other")),
        (
            "AssertionError: cross_entropy and fused_linear_cross_entropy cannot both be True",
            *(() if fused is not None else ("fused_linear_cross_entropy is true by default",)),
        ),
        "write fused_linear_cross_entropy: false, or remove cross_entropy",
        consequence="init",
    )


def _unknown(place: Place, name: str) -> Finding:
    near = nearest(name.removeprefix("liger_"), _KERNELS)
    return Finding(
        f"Liger has no kernel named {name}",
        (place.key_label("ignored"),),
        ("a name that is no kernel of this model is ignored without a message",),
        f"did you mean {quoted(near[:1])}?" if near else f"there are {quoted(list(_KERNELS))}",
        Fix((place.renamed(near[0]),), "unsafe") if near else None,
        severity="warning",
    )


@rule(
    "error",
    "step",
    consumers=("transformers", "llamafactory", "axolotl"),
    reads=(*keys("trainer|axolotl", "ddp_find_unused_parameters"), "peft:*"),
)
def unused_parameters_with_checkpointing(run: LintContext) -> Iterator[Finding]:
    """DDP searches for unused parameters in a graph that reentrant checkpointing runs twice."""
    yield from _in_llamafactory(run)
    yield from _in_axolotl(run)
    yield from _of_an_adapter(run)
    find = run.said("trainer", "ddp_find_unused_parameters")
    checks = run.said("trainer", "gradient_checkpointing", "activation_checkpointing")
    if find is None or checks is None or find.value is not True or checks.value is not True:
        return
    if run.hides("trainer", "gradient_checkpointing_kwargs"):
        return
    world = run.value("parallel.world")
    reentrant = _is_reentrant(run)
    if engine_of(run) or world == 1 or reentrant is False:
        return
    yield Finding(
        "ddp_find_unused_parameters fails with reentrant checkpointing",
        (find.label("checks before the graph is built"), checks.label("", primary=False)),
        (
            "RuntimeError in the backward pass: expected to mark a variable ready only once",
            (
                "reentrant checkpointing builds each layer's graph in the backward pass, after DDP "
                "has looked which parameters take part"
            ),
            *(("transformers before 5 does so by default",) if reentrant is None else ()),
        ),
        "remove ddp_find_unused_parameters, or write gradient_checkpointing_kwargs: "
        "{use_reentrant: false}",
        Fix((find.removed(),), "safe"),
        severity=None if reentrant else "warning",
    )


def _of_an_adapter(run: LintContext) -> Iterator[Finding]:
    """By default the Trainer lets DDP search for unused parameters of a PeftModel.

    transformers 4.57.6 trainer.py `_wrap_model` and 5.23.0 `create_accelerator_and_postprocess`: a
    model that is no PreTrainedModel. Run with 5.23.0, peft 0.21.2 and two processes on a CPU.
    """
    mine = [each for each in loras(run) if each.document.format == "python"]
    world = run.value("parallel.world")
    if not mine or engine_of(run) or not isinstance(world, int) or world < 2:
        return
    if any(_UNSLOTH.search(each.document.text) for each in mine) or _is_reentrant(run) is not True:
        return
    for document in run.of("hf", *TRL):
        checks = document.get("gradient_checkpointing")
        defaults = {_checkpoints(each) for each in schemas(run, document)}
        is_on = True in defaults if checks is None else checks.value is True
        if document.is_view or not is_on or _FIND in document.found:
            continue
        if {"gradient_checkpointing", _FIND}.isdisjoint(document.unknown):
            at = checks or Place(document, "", document.root)
            yield _twice(at, is_certain=defaults == {True} or checks)


def _twice(at: Place, *, is_certain: object) -> Finding:
    return Finding(
        "DDP looks for unused parameters of the adapter under reentrant checkpointing",
        (at.label("each layer's graph is built in the backward pass"),),
        (
            "RuntimeError in the backward pass: expected to mark a variable ready only once",
            "for a model with an adapter the Trainer sets find_unused_parameters itself",
        ),
        "write gradient_checkpointing_kwargs: {use_reentrant: false}, or"
        " ddp_find_unused_parameters: false",
        severity=None if is_certain else "warning",
    )


_FIND: Final = "ddp_find_unused_parameters"
_UNSLOTH: Final = re.compile(r"\bunsloth\b")


def _checkpoints(schema: Schema) -> bool:
    field = schema.get("properties", {}).get("gradient_checkpointing", {})
    return field.get("default") is True


def _in_llamafactory(run: LintContext) -> Iterator[Finding]:
    """LLaMA-Factory uses checkpointing by default, and the reentrant variant by default."""
    for document in run.of("llamafactory"):
        find, world = document.get("ddp_find_unused_parameters"), run.value("parallel.world")
        if find is None or find.value is not True or engine_of(run) or world == 1:
            continue
        if document.value("disable_gradient_checkpointing") is True:
            continue
        if document.value("use_reentrant_gc") is False or run.said(
            "trainer", "gradient_checkpointing"
        ):
            continue
        yield Finding(
            "ddp_find_unused_parameters fails with LLaMA-Factory's reentrant checkpointing",
            (find.label("checks before the graph is built"),),
            (
                (
                    "layers are checkpointed unless disable_gradient_checkpointing is true, and "
                    "reentrantly unless use_reentrant_gc is false"
                ),
                "RuntimeError in the backward pass: expected to mark a variable ready only once",
            ),
            "remove it: with LoRA it is set to false for you",
            Fix((find.removed(),), "safe"),
            certain=world is not None,
        )


def _in_axolotl(run: LintContext) -> Iterator[Finding]:
    """Axolotl requests the reentrant variant if the file does not choose one."""
    for document in run.of("axolotl"):
        find, checks = (
            document.get(key) for key in ("ddp_find_unused_parameters", "gradient_checkpointing")
        )
        if find is None or checks is None or find.value is not True or checks.value is not True:
            continue
        if engine_of(run) or run.value("parallel.world") == 1 or not _reentrant_of(document):
            continue
        if any(document.value(key) for key in ("fsdp", "fsdp_config", "deepspeed")):
            continue
        yield Finding(
            "ddp_find_unused_parameters fails with reentrant checkpointing",
            (find.label("checks before the graph is built"), checks.label("", primary=False)),
            ("RuntimeError in the backward pass: expected to mark a variable ready only once",),
            "write gradient_checkpointing_kwargs: {use_reentrant: false}",
            severity=None if run.value("parallel.world") else "warning",
        )


def _reentrant_of(document: Document) -> bool:
    """Whether Axolotl uses reentrant checkpointing, as written or by default."""
    if document.get("gradient_checkpointing_kwargs") is not None:
        return document.value("gradient_checkpointing_kwargs.use_reentrant") is True
    keys = ("unfrozen_parameters", "rl", "activation_offloading")
    base = str(document.value("base_model") or "").lower()
    return "gemma-4" not in base and not any(document.get(key) for key in keys)


def _is_reentrant(run: LintContext) -> bool | None:
    """Whether checkpointing is reentrant, as written or by release; None if no release is given."""
    own = run.said("llamafactory", "use_reentrant_gc")
    if run.of("llamafactory"):
        return own is None or own.value is not False
    said = run.said("trainer", "gradient_checkpointing_kwargs.use_reentrant")
    if said is not None:
        return said.value is True
    kwargs = run.said("trainer", "gradient_checkpointing_kwargs")
    return run.runs("transformers<5") if kwargs is None else False


@rule("error", "silent", consumers=("transformers",), reads=keys("hf", *sorted(READ_ONCE)))
def precision_set_too_late(run: LintContext) -> Iterator[Finding]:
    """A script sets mixed precision after its arguments have been created."""
    if run.of("deepspeed") or run.said("accelerate", "mixed_precision") is not None:
        return
    if run.said("launch", "flags.mixed_precision", "environment.ACCELERATE_MIXED_PRECISION"):
        return
    for document in run.of("hf"):
        for key in sorted(READ_ONCE & document.hidden.keys()):
            place = document.named[key]
            if document.format == "python" and place.value is True:
                yield Finding(
                    f"{key} is set after TrainingArguments has read it",
                    (place.key_label("the run has no autocast"),),
                    ("the class takes the precision when it is made: the model trains as loaded",),
                    f"give {key}=True to TrainingArguments",
                )


_ADAPTED: Final = Row(
    "trainer|ms-swift:deepspeed",
    "the schedule of adapters fails under DeepSpeed with torch 2.10",
    "ValueError: zip() argument 2 is longer than argument 1",
    "adapters have no weights without decay: DeepSpeed takes that empty group out, and the "
    "schedule still has a rate for it",
    "use torch 2.9, or name an optimizer and a scheduler in DeepSpeed's file",
    effective=("slot:adapter.kind=lora",),
)
_LOST_GROUPS: Final = (
    _ADAPTED,
    replace(_ADAPTED, effective=(), beside=("(peft:r>0)",)),
    replace(_ADAPTED, when="ms-swift:deepspeed", effective=(), beside=("(tuner_type=lora)",)),
)
_COUNTING_GROUPS: Final = (("torch", "torch>=2.10"), ("transformers", "transformers<5"))
"""torch 2.10 optim/lr_scheduler.py zips strictly. transformers 4.57.1 trainer.py makes the schedule
of an optimizer with two groups; deepspeed 0.16.9 to 0.19.8 runtime/engine.py drops empty ones
(modelscope/ms-swift#8299, hiyouga/LlamaFactory#10144, OpenRLHF/OpenRLHF#1234)."""


@rule("error", "step", consumers=("deepspeed", "ms-swift"), reads=reads_of(_LOST_GROUPS))
def schedule_of_a_lost_group(run: LintContext) -> Iterator[Finding]:
    """An adapter runs under DeepSpeed with a torch whose schedules count parameter groups."""
    is_told = all(run.runs(each) and run.release(name).is_named for name, each in _COUNTING_GROUPS)
    if is_told and run.said("deepspeed", "optimizer.type", "scheduler.type") is None:
        told = set()
        for each in found(_LOST_GROUPS, run):
            at = each.labels[0].span
            if at not in told:
                told.add(at)
                yield each
