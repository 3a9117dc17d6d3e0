"""Options of gradient checkpointing, and an engine or frozen weights beside it."""

import re
from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import did_you_mean, nearest
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place, also
from tunec.compiler.lints.facts.lora import has_adapter
from tunec.compiler.lints.facts.training_loop import (
    RECOMPUTED,
    arguments_of,
    checkpointing_place,
    engine_of,
    recomputes,
    reentrant,
    reentrant_place,
)
from tunec.compiler.lints.rule import Consequence, Finding, keys, rule

_HOLDERS: Final = (
    ("gradient_checkpointing_kwargs", "gradient_checkpointing"),
    ("activation_checkpointing_kwargs", "activation_checkpointing"),
)
"""The key of the options and its switch; the second pair has the names from transformers 5.23
on."""
_OPTION_KEYS: Final = (
    *("use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug"),
    "early_stop",
)
_NOT_REENTRANT: Final = ("context_fn", "determinism_check", "debug", "early_stop")


@rule(
    "error",
    "step",
    consumers=("transformers", "torch"),
    reads=keys("trainer", *(holder for holder, _ in _HOLDERS)),
)
def checkpointing_option_refused(run: LintContext) -> Iterator[Finding]:
    """An option of gradient checkpointing that torch does not have."""
    for document in run.of("trainer"):
        for holder, switch in _HOLDERS:
            held = document.get(holder)
            if held is not None and document.value(switch, True) is not False:
                yield from _of(document, holder, held, _known(run, document))


_SELECTIVE: Final = "trl>=1.15"
"""Releases whose SFT trainer removes `selective` before it passes the rest to torch."""


def _known(run: LintContext, document: Document) -> tuple[str, ...]:
    is_trls = document.kind == "sft" and run.runs(_SELECTIVE) is not False
    return (*_OPTION_KEYS, "selective") if is_trls else _OPTION_KEYS


def _of(document: Document, holder: str, held: Place, known: tuple[str, ...]) -> Iterator[Finding]:
    if _is_no_mapping(held):
        yield _text(held)
    names = arguments_of(held) or {}
    for name in names:
        place = document.get(f"{holder}.{name}") or held
        is_odd = names.get("use_reentrant") is True and name in _NOT_REENTRANT
        if name in known and not is_odd:
            continue
        near = (
            []
            if is_odd
            else nearest(name, _OPTION_KEYS)[:1] or ["use_reentrant"] * ("reentrant" in name)
        )
        yield Finding(
            f"gradient checkpointing has no option `{name}`"
            + (" where it is reentrant" if is_odd else ""),
            (place.label("refused") if place is held else place.key_label("refused"),),
            ("torch refuses it in the forward pass of the first step",),
            did_you_mean(near) or "remove it",
            Fix((place.renamed(near[0]),), "unsafe") if near and place is not held else None,
        )


def _is_no_mapping(held: Place) -> bool:
    """Whether a value is a string that does not begin with a brace, so is not parsed as JSON."""
    text = held.value
    return isinstance(text, str) and bool(text) and not text.lstrip().startswith("{")


def _text(held: Place) -> Finding:
    return Finding(
        f"{held.path} is the text {held.value!r}, not a mapping",
        (held.label("taken as text"),),
        ("the arguments accept it, and the first step passes its letters on as options",),
        'write {"use_reentrant": false}, in quotes on a command line',
    )


_SWITCH: Final = "gradient_checkpointing"
_OPTIONS: Final = {"axolotl": ("activation_offloading", "selective_checkpointing")}
_REFUSED: Final = ("activation_offloading", "selective_checkpointing")
"""Options that Axolotl refuses; it does not check the others."""


@rule(
    "note",
    "silent",
    consumers=("transformers", "axolotl"),
    reads=(
        f"trainer:{_SWITCH}_kwargs",
        *keys("axolotl", f"{_SWITCH}_kwargs", *_OPTIONS["axolotl"]),
    ),
)
def checkpointing_options_ignored(run: LintContext) -> Iterator[Finding]:
    """Options of activation recomputation, which is not turned on."""
    for document in run.of("trainer", "axolotl"):
        if document.is_view or document.kind == "llamafactory" or not _is_off(run, document):
            continue
        for place in _written(document):
            yield _finding(place, document)


def _written(document: Document) -> Iterator[Place]:
    keys = (f"{_SWITCH}_kwargs", *_OPTIONS.get(document.kind, ()))
    for key in keys:
        place = document.get(key)
        if place is not None and _is_set(place.value):
            yield place


def _is_set(value: Any) -> bool:
    return value not in (None, False, "", 0, {}, "none", "None")


def _is_off(run: LintContext, document: Document) -> bool:
    if _SWITCH in document.unknown:
        return False
    said = document.get(_SWITCH)
    if said is not None:
        return said.value in (False, None)
    if document.kind == "axolotl":
        return True
    return run.effective(document.kind, _SWITCH).value is False


def _finding(place: Place, document: Document) -> Finding:
    switch = document.get(_SWITCH)
    selective = document.get(f"{_SWITCH}_kwargs.selective")
    is_selective = document.kind == "sft" and selective is not None and selective.value is True
    refused = place.path in _REFUSED or is_selective
    when: Consequence = "init" if is_selective else "parse" if refused else "silent"
    return Finding(
        f"{place.path} without {_SWITCH}: nothing is recomputed",
        (place.key_label("refused" if refused else "does nothing"), *also(switch)),
        (),
        f"set {_SWITCH}: true, or remove it",
        # turned off on purpose, it waits for the switch
        severity="error" if refused else "note" if switch is not None else None,
        consequence=when,
    )


_NAMES: Final = (
    ("gradient_checkpointing", "activation_checkpointing"),
    ("gradient_checkpointing_kwargs", "activation_checkpointing_kwargs"),
)


@rule(
    "error",
    "silent",
    consumers=("transformers",),
    reads=keys("trainer", *(newer for _, newer in _NAMES)),
)
def older_name_overridden(run: LintContext) -> Iterator[Finding]:
    """Activation checkpointing has different values under its older and its newer name."""
    if run.runs("transformers<=5.15.1"):
        return  # of which none has the newer name
    for document in run.of("hf", *TRL):
        for older, newer in _NAMES:
            old, new = document.get(older), document.get(newer)
            if old is None or new is None or None in (old.value, new.value):
                continue
            if old.value != new.value:
                yield Finding(
                    f"{older} is overridden by {newer}",
                    (old.label("not read"), new.label("holds", primary=False)),
                    ("the older name is read where the newer one is left out",),
                    f"remove {older}",
                    Fix((old.removed(),), "safe"),
                )


_CACHE_KEYS: Final = ("use_cache", "model_init_kwargs.use_cache", "model_kwargs.use_cache")


@rule("warning", "silent", consumers=("transformers",), reads=keys("model|trainer", *_CACHE_KEYS))
def cache_beside_checkpointing(run: LintContext) -> Iterator[Finding]:
    """A key-value cache is requested although activations are recomputed."""
    switch = checkpointing_place(run)
    if switch is None or not recomputes(run):
        return
    for at in _requested(run):
        yield Finding(
            "use_cache is turned off where activations are recomputed",
            (at.label("does nothing"), switch.label("", primary=False)),
            (
                (
                    "transformers sets it to False: `use_cache=True` is incompatible with gradient "
                    "checkpointing; cached keys would be stored twice when a layer runs again"
                ),
            ),
            "write use_cache: false",
        )


def _requested(run: LintContext) -> Iterator[Place]:
    for document in run.of("model", "trainer"):
        if document.is_view or document.kind == "llamafactory":
            continue
        at = next((found for key in _CACHE_KEYS if (found := document.get(key)) is not None), None)
        if at is not None and at.value is True:
            yield at


@rule("error", "step", consumers=("peft",), reads=("peft:peft_type",))
def adalora_recomputed_by_reentrance(run: LintContext) -> Iterator[Finding]:
    """AdaLoRA's own loss is used with reentrant checkpointing in several processes."""
    kind = run.said("peft", "peft_type")
    if kind is None or kind.value != "ADALORA" or engine_of(run):
        return
    place, world = reentrant_place(run) or checkpointing_place(run), run.value("parallel.world")
    if place is None or reentrant(run) is not True or world == 1:
        return
    yield Finding(
        "AdaLoRA fails with reentrant checkpointing in several processes",
        (place.label("reentrant"), kind.label("", primary=False)),
        (
            (
                "AdaLoRA adds a term of its adapters' orthogonality to the loss, outside of the "
                "layers that are recomputed: DDP sees each adapter ready twice"
            ),
            "RuntimeError in the backward pass: expected to mark a variable ready only once",
        ),
        "set use_reentrant to false",
        certain=world is not None,
    )


_FAILS: Final = "deepspeed<0.19.3"
_NOT_BY_DEFAULT: Final = "transformers>=5"
_FORCES: Final = "trl>=0.28"
_WHY: Final = (
    "DeepSpeed before 0.19.3 frees frozen weights while a layer is recomputed: recomputed values "
    "have different metadata, of shape [0]"
)


@rule("error", "step", consumers=(_FAILS,), reads=RECOMPUTED)
def non_reentrant_adapter_under_zero_3(run: LintContext) -> Iterator[Finding]:
    """Non-reentrant checkpointing over frozen weights, under ZeRO-3 of older releases."""
    stage = run.slot("zero.stage")
    if stage is None or stage.value != 3 or not recomputes(run) or not has_adapter(run):
        return
    place, where = _not_reentrant(run), run.place(stage)
    if place is None or (_is_trl(place) and run.runs(_FORCES) is not False):
        return
    yield Finding(
        "non-reentrant checkpointing of a frozen base fails under ZeRO stage 3",
        (place.label("not reentrant"), *also(where, "stage 3")),
        (_WHY,),
        "set use_reentrant to true, use stage 2, or DeepSpeed 0.19.3",
        # Axolotl ships such a file; which DeepSpeed runs it is the user's extra
        severity="warning" if run.of("axolotl") else None,
    )


def _not_reentrant(run: LintContext) -> Place | None:
    """The place that requests the variant, or recomputation if the variant is the default."""
    place = reentrant_place(run)
    if place is None or place.value is False:
        return place
    is_default = place.path.rpartition(".")[2] not in ("use_reentrant", "use_reentrant_gc")
    is_known = run.runs(_FAILS) and run.runs(_NOT_BY_DEFAULT) and reentrant(run) is False
    return place if is_default and is_known and not _is_trl(place) else None


def _is_trl(place: Place) -> bool:
    return place.document.kind in TRL


_REENTRANT_OWN = (*TRL, *("llamafactory", "axolotl", "simpletuner", "unsloth"), "alpaca-lora")
"""Trainers that make the input of the first layer require a gradient themselves."""


_ENABLED: Final = re.compile(
    r"enable_input_require_grads|prepare_model_for_(?:kbit|int8)_training"
    r"|gradient_checkpointing_enable\([\s\S]*?\bget_peft_model\("
)
"""Calls with which a script does so: peft 0.10.0 to 0.21.2 utils/other.py
`prepare_model_for_kbit_training` makes the output of the embedding require a gradient, and
peft_model.py `PeftModel.__init__` does if the base already recomputes."""


_OF_TRL: Final = re.compile(
    r"\b(?:SFT|DPO|KTO|ORPO|CPO|GRPO|Reward)Trainer\((?=[^#]*\bpeft_config\s*=)"
)
"""trl 0.4.7 trainer/sft_trainer.py and dpo_trainer.py `__init__`, to 1.16.0: with `peft_config`
they prepare a quantised model, or make the input require a gradient."""


@rule(
    "warning",
    "step",
    consumers=("transformers<5", "axolotl>=0.8"),
    reads=(*RECOMPUTED, "axolotl:unfrozen_parameters"),
)
def reentrant_over_frozen_base(run: LintContext) -> Iterator[Finding]:
    """Reentrant checkpointing over frozen layers, whose inputs require no gradient."""
    yield from _partly_frozen(run)
    if not recomputes(run) or reentrant(run) is not True or not has_adapter(run):
        return
    place = reentrant_place(run)
    if place is None or run.of(*_REENTRANT_OWN) or run.runs("transformers>=5"):
        return
    scripts = [each.text for each in run.documents if each.format == "python"]
    if any(_ENABLED.search(text) or _OF_TRL.search(text) for text in scripts):
        return
    adapter = run.place(run.observed("adapter.kind"))
    yield Finding(
        "reentrant checkpointing over a frozen base: no gradient reaches the adapters",
        (place.label("reentrant"), *also(adapter, "the base is frozen")),
        (
            (
                "it recomputes with gradients only if its input requires one, and the output of a "
                "frozen embedding does not, unless the script calls enable_input_require_grads()"
            ),
        ),
        "set use_reentrant to false",
    )


def _partly_frozen(run: LintContext) -> Iterator[Finding]:
    """Report reentrant checkpointing beside `unfrozen_parameters`, which Axolotl refuses."""
    for unfrozen in run.each("axolotl", "unfrozen_parameters"):
        document = unfrozen.document
        place = document.get("gradient_checkpointing_kwargs.use_reentrant")
        if unfrozen.value and place is not None and place.value is True:
            yield _refused(place, unfrozen)


def _refused(place: Place, unfrozen: Place) -> Finding:
    return Finding(
        "Axolotl refuses reentrant checkpointing with partly frozen parameters",
        (place.label("reentrant"), unfrozen.key_label("freezes the rest", primary=False)),
        ("a layer is recomputed with gradients only if its input requires one",),
        "set use_reentrant to false",
        severity="error",
        consequence="parse",
    )
