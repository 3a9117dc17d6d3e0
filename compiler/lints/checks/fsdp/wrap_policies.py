"""The modules that FSDP wraps."""

import re
from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.analyses.architecture.layer_classes import LAYERS, lists_too_few
from tunec.compiler.analyses.fsdp_units import embedding_in_two_units
from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place, also
from tunec.compiler.lints.facts.sharding import TURNS_ON, FsdpSettings, asked, fsdp_keys, words
from tunec.compiler.lints.rule import Finding, rule

_KEYS: Final = (
    ("accelerate", "fsdp_config.fsdp_transformer_layer_cls_to_wrap"),
    ("trainer", "fsdp_config.transformer_layer_cls_to_wrap"),
    ("trainer", "fsdp_config.fsdp_transformer_layer_cls_to_wrap"),
    ("trainer", "fsdp_transformer_layer_cls_to_wrap"),
    ("axolotl", "fsdp_config.fsdp_transformer_layer_cls_to_wrap"),
    ("axolotl", "fsdp_config.transformer_layer_cls_to_wrap"),
)


@rule(
    "error",
    "init",
    consumers=("accelerate", "transformers"),
    reads=tuple(f"{kind}:{key}" for kind, key in _KEYS),
)
def fsdp_class_with_a_blank(run: LintContext) -> Iterator[Finding]:
    """Class names to wrap have a space after the comma, which becomes part of the name."""
    for kind, key in _KEYS:
        for document in run.of(kind):
            at = document.get(key)
            if document.is_view or at is None or not isinstance(at.value, str):
                continue
            names = at.value.split(",")
            blank = next((each for each in names if each != each.strip() and each.strip()), None)
            if blank is None or len(names) < 2:
                continue
            plain = ",".join(each.strip() for each in names)
            yield Finding(
                f"the list of classes to wrap has a space: {blank!r} is looked for",
                (at.label("split only at the commas"),),
                ("Could not find the transformer layer class in the model",),
                f"write {plain}",
                Fix((at.replaced(plain),), "safe"),
            )


_POLICIES: Final = ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP")


@rule("error", "parse", consumers=("transformers",), reads=fsdp_keys("auto_wrap_policy"))
def fsdp_policy_refused(run: LintContext) -> Iterator[Finding]:
    """A wrap policy that the Trainer does not have under that name."""
    is_old = run.runs("transformers<=5.6.2")
    if is_old is True:
        return
    for each in asked(run):
        at = each.get("auto_wrap_policy")
        if each.who != "trainer" or at is None or at.value in _POLICIES:
            continue
        meant = str(at.value).upper()
        yield Finding(
            f"auto_wrap_policy {at.value} is not one of the Trainer's policies",
            (at.label("refused"), each.on.label("", primary=False)),
            (
                f"the policies are {', '.join(_POLICIES)}, in capitals",
                *(("releases up to 5.6.2 do not read the key",) if is_old is None else ()),
            ),
            f"write {meant if meant in _POLICIES else _POLICIES[0]}",
            Fix((at.replaced(meant),), "safe") if meant in _POLICIES else None,
            severity="warning" if is_old is None else None,
        )


@rule("error", "parse", consumers=("transformers", "accelerate"), reads=fsdp_keys("min_num_params"))
def fsdp_two_wrap_policies(run: LintContext) -> Iterator[Finding]:
    """Units are set both by class and by size."""
    for each in asked(run):
        yield from _size_alone(run, each)
        size, layer = each.get("min_num_params"), each.get("transformer_layer_cls_to_wrap")
        policy = each.get("auto_wrap_policy")
        if size is None or layer is None or not isinstance(size.value, int) or size.value <= 0:
            continue
        is_old = run.runs("transformers<=5.6.2")
        if each.who == "trainer" and is_old is not False:
            yield Finding(
                "min_num_params and transformer_layer_cls_to_wrap exclude each other",
                (size.label("refused"), layer.label("", primary=False)),
                () if is_old else ("the version is not given; it holds for transformers<=5.6.2",),
                "keep transformer_layer_cls_to_wrap",
                Fix((size.removed(),), "unsafe"),
                severity=None if is_old else "warning",
            )
        elif each.who == "accelerate" and policy is not None:
            by_class = _is_by_class(policy)
            unread = size if by_class else layer
            yield Finding(
                f"{unread.path.rpartition('.')[2]} is not read with {policy.value}",
                (unread.label("not read"), policy.label("", primary=False)),
                (),
                "remove it",
                Fix((unread.removed(),), "safe"),
                consequence="silent",
                severity="note",
            )


def _size_alone(run: LintContext, each: FsdpSettings) -> Iterator[Finding]:
    """Report a unit size without the policy by size, which is no longer the default."""
    size, policy = each.get("min_num_params"), each.get("auto_wrap_policy")
    if each.who != "trainer" or size is None or run.runs("transformers>=5.15") is not True:
        return
    by_size = policy is not None and str(policy.value).upper() == "SIZE_BASED_WRAP"
    if isinstance(size.value, int) and size.value > 0 and not by_size:
        yield Finding(
            "min_num_params is not read: units are wrapped by class",
            (size.label("not read"), *also(policy)),
            ("auto_wrap_policy is TRANSFORMER_BASED_WRAP by default",),
            "write auto_wrap_policy: SIZE_BASED_WRAP, or remove min_num_params",
            severity="warning",
            consequence="silent",
        )


_KNOWN: Final = frozenset(name for names in LAYERS.values() for name in names)
_SPELT: Final = {name.casefold(): name for name in _KNOWN}
_MAKERS: Final = (
    (r"Qwen/Qwen(1\.5|2|2\.5)-(Coder-|Math-)?[\d.]+B(-Instruct|-Chat)?", "qwen2"),
    (r"Qwen/Qwen3-[\d.]+B(-Base)?", "qwen3"),
    (r"(meta-llama|huggyllama|NousResearch)/(Meta-)?llama-(2|3|3\.1|3\.3)?-?\d+b.*", "llama"),
    (r"lmsys/vicuna-\d+b-v1\.[35](-16k)?", "llama"),
    (r"mistralai/Mistral-7B-.*", "mistral"),
    (r"mistralai/Mixtral-8x.*", "mixtral"),
    (r"google/gemma-[27]b(-it)?", "gemma"),
    (r"google/gemma-2-.*", "gemma2"),
    (r"facebook/opt-.*", "opt"),
    (r"bigscience/bloomz?(-.*)?", "bloom"),
    (r"EleutherAI/(pythia|gpt-neox)-.*", "gpt_neox"),
    (r"tiiuae/falcon-\d+b(-instruct)?", "falcon"),
    (r"(openai-community/)?gpt2(-medium|-large|-xl)?", "gpt2"),
)
"""Models outside the catalogue by their makers' names, with the model_type of each model's
config.json."""


@rule("error", "init", consumers=("accelerate",), reads=fsdp_keys("transformer_layer_cls_to_wrap"))
def fsdp_wrap_class_of_another_model(run: LintContext) -> Iterator[Finding]:
    """The model does not have the class of layers to wrap."""
    path, own = _model(run)
    for each in asked(run):
        place = each.get("transformer_layer_cls_to_wrap")
        policy = each.get("auto_wrap_policy")
        if place is None or (policy and not _is_by_class(policy)):
            continue
        for name in _names(place.value):
            meant = own[0] if own else _SPELT.get(name.casefold(), name)
            if own and name in _KNOWN and name not in own:
                yield _wrap_class_finding(
                    f"{path} has no layers of class {name}", place, name, meant
                )
            elif name not in _KNOWN and name.casefold() in _SPELT:
                yield _wrap_class_finding(
                    f"no model has layers of class {name}", place, name, meant
                )


def _model(run: LintContext) -> tuple[str, tuple[str, ...]]:
    """The model and its layer classes; no classes if it is unknown or has several parts."""
    model = run.model
    if model is not None:
        own = () if model.components else LAYERS.get(model.architecture.family, ())
        return model.path, own
    path = run.model_name or ""
    for pattern, family in _MAKERS:
        if re.fullmatch(pattern, path, re.IGNORECASE):
            return path, LAYERS[family]
    return "", ()


def _wrap_class_finding(message: str, place: Place, name: str, meant: str) -> Finding:
    return Finding(
        message,
        (place.label("refused"),),
        (f"the layers are of class {meant}",),
        f"write {meant}, or leave the key out: the model names its own",
        Fix((place.replaced(meant),), "safe") if place.value == name else None,
    )


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(each.strip() for each in value.split(","))
    every = value if isinstance(value, list | tuple) else ()
    return tuple(each for each in every if isinstance(each, str))


_POLICY: Final = "auto_wrap_policy"
_CLASSES: Final = "transformer_layer_cls_to_wrap"
_BY_CLASS: Final = "write fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP"


@rule("warning", "out-of-memory", consumers=("accelerate", "transformers"), reads=TURNS_ON)
def fsdp_wraps_nothing(run: LintContext) -> Iterator[Finding]:
    """The whole model is a single unit, which is gathered at once."""
    if run.world is not None and run.world.value == 1:
        return  # one process gathers nothing
    others = list(asked(run))
    for each in others:
        if each.who == "accelerate" and not any(one.who == "trainer" for one in others):
            if each.get(_POLICY) or not any(one.get(_POLICY) for one in others):
                yield from _accelerate(each)
        elif (
            each.who == "trainer" and (words(each.on) or _is_old(run)) and _is_old(run) is not False
        ):
            if run.said("trainer", "deepspeed") or run.hides("trainer", "deepspeed", "fsdp_config"):
                continue
            wraps = "auto_wrap" in words(each.on) or any(one.get(_POLICY) for one in others)
            if not wraps:
                yield _wraps_finding(
                    each.on, "no auto_wrap among the options", "add auto_wrap", _is_old(run)
                )


def _is_old(run: LintContext) -> bool | None:
    """Whether the trainer wraps only with the option auto_wrap."""
    return run.runs("transformers<=5.6.2")


def _accelerate(each: FsdpSettings) -> Iterator[Finding]:
    policy, smallest = each.get(_POLICY), each.get("min_num_params")
    word = "NO_WRAP" if policy is None else str(policy.value).upper()
    if word == "NO_WRAP":
        yield _wraps_finding(
            policy or each.on, "no auto_wrap_policy" if policy is None else "", _BY_CLASS
        )
    elif word == "SIZE_BASED_WRAP" and smallest is not None and smallest.value == 0:
        yield _wraps_finding(smallest, "0 turns wrapping off", _BY_CLASS)
    elif (
        word == "SIZE_BASED_WRAP" and smallest is None and policy is not None and each.version == 1
    ):
        yield _wraps_finding(policy, "no fsdp_min_num_params, which is then 0", _BY_CLASS)


def _wraps_finding(place: Place, text: str, change: str, is_old: bool | None = True) -> Finding:
    return Finding(
        "FSDP wraps no layer: every device gathers the whole model at once",
        (place.label(text),),
        (
            "each wrapped unit is gathered when it runs, and freed after",
            "with one unit the parameters are whole during forward and backward",
            *(("the version is not given; this holds for transformers<=5.6.2",) * (not is_old)),
        ),
        change,
    )


@rule("error", "step", consumers=("accelerate", "transformers"), reads=TURNS_ON)
def embedding_in_two_fsdp_units(run: LintContext) -> Iterator[Finding]:
    """FSDP cannot keep the model's embedding in one unit."""
    if run.model is None:
        return
    released = run.releases.get("accelerate")
    for each in asked(run):
        why = embedding_in_two_units(
            run.model.architecture,
            each.version or 0,
            None if released is None else released.version,
            _units(each),
        )
        if why is not None:
            yield Finding(
                f"FSDP {each.version} fails with {run.model.path}",
                ((each.get("version") or each.on).label("refused"),),
                (why, "torch 2.13 refuses it in the first pass; older ones train two copies"),
                "use fsdp_version 1" if each.version == 2 else "use DDP or DeepSpeed",
            )


def _units(each: FsdpSettings) -> tuple[str, ...] | None:
    """The classes that the file wraps; None: those that the model names."""
    named, policy = each.get(_CLASSES), each.get(_POLICY)
    if policy is not None and not _is_by_class(policy):
        return ()
    if named is None:
        return None
    return (str(named.value),)


_NAMED_SINCE: Final = "transformers>=5.1"
"""The first release in which a model's list holds those of its parts."""
_ABSENT: Final = (
    "the list of {} names layer classes that the model does not have",
    "accelerate stops: Could not find the transformer layer class",
)
_FEW: Final = (
    "the list of {} lacks the layers of its parts before transformers 5.1",
    "accelerate stops at a listed class that is absent, and gathers what is not listed as a whole",
)


@rule("error", "init", consumers=("accelerate", "transformers"), reads=TURNS_ON)
def fsdp_layer_classes_absent(run: LintContext) -> Iterator[Finding]:
    """The classes to wrap are left to the model, whose list is not of its layers."""
    model = run.model
    if model is None or not model.architecture.layer_classes:
        return
    family, classes = model.architecture.family, model.architecture.layer_classes
    is_later, is_few = run.runs(_NAMED_SINCE), lists_too_few(family, classes)
    holds = (is_later is False) if is_few else True if family == "gemma3" else is_later
    if holds is False:
        return
    title, why = _FEW if is_few else _ABSENT
    for each in asked(run):
        if each.get(_CLASSES) is None and _wraps_layers(each):
            yield Finding(
                title.format(model.path),
                ((each.get(_POLICY) or each.on).label("wraps by the model's own list"),),
                (why, *((f"the version is not given; it holds for {_NAMED_SINCE}",) * (not holds))),
                f"write transformer_layer_cls_to_wrap: {','.join(classes)}",
                severity=None if holds and not is_few else "warning",
            )


def _wraps_layers(each: FsdpSettings) -> bool:
    """Whether a file asks for units by class."""
    policy = each.get(_POLICY)
    if policy is not None:
        return _is_by_class(policy)
    return each.who == "trainer" and "auto_wrap" in words(each.on)


def _is_by_class(policy: Place) -> bool:
    """Whether a policy forms units by class; its name is read in any case."""
    return str(policy.value).upper() == "TRANSFORMER_BASED_WRAP"
