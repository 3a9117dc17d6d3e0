"""Rules about renamed or misplaced keys of DeepSpeed's file, and blocks without their switch."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.consumers.moved_keys import MOVED
from tunec.compiler.diagnostics.diagnostic import Fix, Label
from tunec.compiler.diagnostics.wording import quoted
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place, also
from tunec.compiler.lints.effective import AUTO_OF_DEEPSPEED, default_of
from tunec.compiler.lints.facts.known_keys import BF16_SCALING, homes_of, is_whole
from tunec.compiler.lints.facts.launch import TUNED, is_autotuned
from tunec.compiler.lints.facts.sharding import stage_of
from tunec.compiler.lints.facts.training_loop import is_positive
from tunec.compiler.lints.rule import Consequence, Finding, keys, rule
from tunec.compiler.lints.schemas import Fault, faults


@rule("error", "silent", consumers=("deepspeed",), reads=("deepspeed:*",))
def misplaced_key(run: LintContext) -> Iterator[Finding]:
    """A key of DeepSpeed is at another level than the one that DeepSpeed reads."""
    for document in run.of("deepspeed"):
        if not is_whole(document):
            continue
        for fault in faults(run, document):
            homes = homes_of(run, fault.path)
            if fault.what != "unknown" or not homes or fault.path in BF16_SCALING:
                continue
            # a block drops "auto" before it looks at its keys
            is_refused = fault.is_refused and fault.place.value != "auto"
            yield Finding(
                f"`{fault.path}` is not where DeepSpeed looks for it",
                (fault.place.key_label("refused here" if is_refused else "ignored here"),),
                (f"by the keys of {run.release('deepspeed')}",),
                f"it belongs at {quoted(homes)}",
                consequence="init" if is_refused else "silent",
                severity="note" if not is_refused and _is_default(fault) else None,
            )


_DEFAULTS: Final = {
    "torch_adam": False,
    "adam_w_mode": True,
    "stage3_gather_16bit_weights_on_model_save": False,
    "overlap_comm": False,
    "contiguous_gradients": True,
    "cpu_offload": False,
}
"""The values that hold if a key is not read: deepspeed 0.14.5 to 0.19.8 runtime/config.py
`TORCH_ADAM_PARAM`, `ADAM_W_MODE_DEFAULT`, runtime/zero/config.py."""


def _is_default(fault: Fault) -> bool:
    """Whether the unread key sets the default, so that nothing is lost."""
    value = _DEFAULTS.get(fault.path.rpartition(".")[2])
    return value is not None and fault.place.value is value


@rule("error", "init", consumers=("deepspeed",), reads=keys("deepspeed", *BF16_SCALING))
def loss_scale_under_bf16(run: LintContext) -> Iterator[Finding]:
    """The bf16 block has keys of fp16's loss scaling."""
    for document in run.of("deepspeed"):
        for fault in faults(run, document):
            if fault.what != "unknown" or fault.path not in BF16_SCALING:
                continue
            yield Finding(
                f"`{fault.path}` is a key of fp16: bf16 has no loss scale",
                (fault.place.key_label("refused" if fault.is_refused else "ignored"),),
                (f"by the keys of {run.release('deepspeed')}",),
                "remove it",
                Fix((fault.place.removed(),), "safe"),
                severity=None if fault.is_refused else "note",
                consequence="init" if fault.is_refused else "silent",
            )


_BLOCKS: Final = ("amp", "progressive_layer_drop")


@rule("error", "init", consumers=("deepspeed<0.19",), reads=keys("deepspeed", *_BLOCKS))
def block_without_its_switch(run: LintContext) -> Iterator[Finding]:
    """A block of ds_config.json does not set `enabled`."""
    for document in run.of("deepspeed"):
        for name in _BLOCKS:
            block = document.get(name)
            if block is None or block.node.fields is None or "enabled" in block.node.fields:
                continue
            yield Finding(
                f"`{name}` has no `enabled`, which DeepSpeed requires",
                (block.key_label("refused"),),
                ("KeyError: 'enabled'",),
                f"write {name}.enabled, or remove {name}",
            )


@rule(
    "warning",
    "silent",
    consumers=("deepspeed",),
    reads=keys("deepspeed", *(each.old for each in MOVED["deepspeed"])),
)
def deprecated_key(run: LintContext) -> Iterator[Finding]:
    """A key is deprecated: DeepSpeed still reads it, in place of another key."""
    for document in run.of("deepspeed"):
        for moved in MOVED["deepspeed"]:
            place = document.get(moved.old)
            if place is None or document.is_view:
                continue
            old, new = (key.rpartition(".")[2] for key in (moved.old, moved.new))
            how = moved.help or f"write {new}"
            yield Finding(
                f"{old} is deprecated{'' if new else ': it is not read'}",
                (place.key_label("read as another key" if new else "not read"),),
                (f"the key is {how.removeprefix('write ')} now",),
                how,
                Fix((place.renamed(new),), "safe") if moved.is_same else None,
                severity="note" if place.value is False else None,  # as without it
            )


@rule("error", "init", consumers=("deepspeed",), reads=("deepspeed:*",))
def auto_in_plain_deepspeed(run: LintContext) -> Iterator[Finding]:
    """The file contains `auto`, but DeepSpeed reads it without a trainer that fills it in."""
    if run.deepspeed_reader == "trainer":
        return
    is_plain = run.deepspeed_reader == "plain"
    for document in run.of("deepspeed"):
        if document.is_view:
            continue
        tuned = TUNED if is_autotuned(run, document) else ()
        every = document.where(_plain_is_auto).items()
        said = {path: place for path, place in every if not path.startswith(tuned)}
        if said and is_plain:
            for path, place in said.items():
                yield _one(run, path, place)
        elif said:
            yield _maybe(said)


def _plain_is_auto(path: str, value: Any) -> bool:
    return bool(value == "auto") and not path.startswith(AUTO_OF_DEEPSPEED)


def _one(run: LintContext, path: str, place: Place) -> Finding:
    default = default_of(run, "deepspeed", path)
    drops = "." in path and not path.startswith(("optimizer.", "scheduler."))
    value = f"{default.value}" if default.known else "its default"
    note = f"the block drops it, so {value} holds" if drops else "it is used as the word that it is"
    return Finding(
        f"`{path}` stays auto: no program fills it in",
        (place.label("auto"),),
        (note,),
        "write the value, or let the Trainer read the file",
        consequence="silent" if drops else "init",
    )


def _maybe(said: Mapping[str, Place]) -> Finding:
    labels: list[Label] = []
    for place in said.values():
        labels.append(place.label("auto", primary=not labels))
    names = ", ".join(said)
    return Finding(
        f"whether anybody fills in auto: {names}",
        tuple(labels),
        ("the Trainer fills auto in; deepspeed.initialize fails on it or takes its default",),
        "name the reader with --from huggingface or --from deepspeed",
        certain=False,
        consequence="unclear",
    )


@rule("note", "silent", consumers=("deepspeed",), reads=("deepspeed:optimizer.type",))
def adam_is_adamw(run: LintContext) -> Iterator[Finding]:
    """DeepSpeed's Adam applies decoupled weight decay, as AdamW does."""
    kind = run.said("deepspeed", "optimizer.type")
    word = kind.value.lower() if kind is not None and isinstance(kind.value, str) else ""
    if kind is not None and word == "adamw":
        yield from _decoupled_anyway(run, kind)
    if kind is None or word != "adam":
        return
    decay = run.effective("deepspeed", "optimizer.params.weight_decay")
    if run.said("deepspeed", "optimizer.params.adam_w_mode") or not is_positive(decay.value):
        return
    yield Finding(
        f"{kind.value} with weight decay {decay.value} runs as AdamW",
        (kind.label("AdamW"), *also(decay.place)),
        (
            (
                "adam_w_mode is true by default: the decay is taken from the weights, "
                "and not added to the gradient"
            ),
        ),
        'write "type": "AdamW", or "adam_w_mode": false for L2 regularisation',
    )


def _decoupled_anyway(run: LintContext, kind: Place) -> Iterator[Finding]:
    mode = run.said("deepspeed", "optimizer.params.adam_w_mode")
    if mode is not None and mode.value is False:
        yield Finding(
            f"adam_w_mode false does nothing for {kind.value}",
            (mode.label("not read"), kind.label("AdamW by its name", primary=False)),
            ("the name AdamW decides: the decay is taken from the weights",),
            'write "type": "Adam" for L2 regularisation, or remove adam_w_mode',
            severity="warning",
        )


_SECTIONS: Final = {
    "optimizer": "DeepSpeed builds no optimizer from it, and does not read its numbers",
    "scheduler": "DeepSpeed builds no scheduler from it: the learning rate stays constant",
}
_STAND_INS: Final = {
    "optimizer": "the trainer counts the section as one and leaves it to DeepSpeed: none is built",
    "scheduler": "the trainer counts the section as one, and its DummyScheduler has no step()",
}
"""What follows if the Trainer reads the file: any section counts as an optimizer or a scheduler."""


@rule(
    "error", "silent", consumers=("deepspeed",), reads=keys("deepspeed", "scheduler", "optimizer")
)
def section_without_type(run: LintContext) -> Iterator[Finding]:
    """An optimizer or scheduler section in ds_config.json does not name a type."""
    for document in run.of("deepspeed"):
        for name, why in _SECTIONS.items():
            section = document.get(name)
            if section is None or not section.node.fields or document.get(f"{name}.type"):
                continue
            is_dummy = run.deepspeed_reader == "trainer"
            is_part = document.get(f"{name}.params") is not None  # its type may only be left out
            yield Finding(
                f"`{name}` has no type: it does nothing",
                (section.key_label("not used"),),
                (why, *((_STAND_INS[name],) if is_dummy else ())),
                f'add "type": "{"AdamW" if name == "optimizer" else "WarmupLR"}"',
                severity=None if is_dummy and not is_part else "warning",
                consequence=_when(run, name) if is_dummy else None,
            )


def _when(run: LintContext, name: str) -> Consequence:
    """When the run fails: ZeRO 1 and 2 need an optimizer at init, the rest in the first step."""
    is_asked = name == "optimizer" and stage_of(run).value in (1, 2)
    return "init" if is_asked else "step"
