"""Values outside the range that the reader takes, and `auto`."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.consumers.schemas import class_schema, known_releases
from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import joined, nearest, quoted, shown
from tunec.compiler.lints.checks.keys.texts import number_of
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRAINERS, TRL, Document, Place
from tunec.compiler.lints.effective import CLASSES, filled_keys, is_launched_by_accelerate
from tunec.compiler.lints.facts.known_keys import is_whole
from tunec.compiler.lints.facts.launch import TUNED, is_autotuned
from tunec.compiler.lints.rule import Consequence, Finding, rule
from tunec.compiler.lints.schemas import Fault, faults, is_in_range, kinds_of
from tunec.schemas.frozen import replace

_KINDS: Final = ("hf", *TRL, "llamafactory")


@rule(
    "error",
    "init",
    consumers=("deepspeed", "transformers", "peft"),
    reads=("deepspeed:*", "trainer:*", "peft:*"),
    unless="quoted",
)
def value_out_of_range(run: LintContext) -> Iterator[Finding]:
    """A value that is not one of its reader's words, or is outside its reader's range."""
    for document in run.of("deepspeed", *_KINDS, "peft"):
        if not is_whole(document):
            continue
        for fault in faults(run, document):
            is_out = fault.what == "value" or _is_beyond_as_number(document, fault)
            if is_out and not _is_taken(fault) and fault.path != _TASK:
                found = _value_finding(fault, _elsewhere(run, document, fault))
                if document.kind in _KINDS:
                    found = replace(found, consequence="parse")
                yield _unchecked(found, fault.path) if document.kind == "deepspeed" else found


_TASK: Final = "task_type"
"""Its words are those of `adapter-method-refused`."""
_UNCHECKED: Final = {"gradient_clipping": "no gradient is clipped by a norm below 0"}
"""Keys of ds_config.json whose bounds are not checked, and the effect of a value outside them."""


def _unchecked(found: Finding, path: str) -> Finding:
    if path not in _UNCHECKED:
        return found
    return replace(found, notes=(*found.notes, _UNCHECKED[path]), consequence="silent")


def _is_beyond_as_number(document: Document, fault: Fault) -> bool:
    """Whether pydantic converts a string to a number and refuses it: `sub_group_size: "-1"`."""
    value = fault.place.value
    number = number_of(value) if isinstance(value, str) and fault.is_checked else None
    choices = [each for each in fault.schema.get("anyOf", (fault.schema,)) if kinds_of(each)]
    if document.kind != "deepspeed" or number is None or not choices:
        return False
    return not any(is_in_range(number, each) for each in choices)


def _is_taken(fault: Fault) -> bool:
    """Whether the reader takes the value although the schema does not list it.

    peft 0.10.0 to 0.21.2 tuners/lora/layer.py: `pissa_niter_[number]`; gaussian and olora in any
    case; tuners/tuners_utils.py: `boft_only` and the like are biases of other methods. A word that
    is listed in both upper case and capitalised is taken in any case: deepspeed 0.8.3 to 0.19.8
    runtime/config.py `get_checkpoint_tag_validation_mode` calls `upper()`.
    """
    value, name = fault.place.value, fault.path.rpartition(".")[2]
    words = fault.schema.get("enum", ())
    if isinstance(value, str) and {value.upper(), value.capitalize()} <= {*map(str, words)}:
        return True
    is_unchecked = fault.path == "fp16.loss_scale" and not fault.is_checked
    is_listed = fault.path == "debug" and isinstance(value, list)  # `word-refused-later`
    if isinstance(value, bool) or is_unchecked or is_listed:
        return True
    if fault.path == "bias" and isinstance(value, str) and value.endswith("_only"):
        return True
    if name != "init_lora_weights" or not isinstance(value, str):
        return False
    is_pissa = value.startswith("pissa_niter_") and value.removeprefix("pissa_niter_").isdigit()
    return is_pissa or value.lower() in ("gaussian", "olora")


def _elsewhere(run: LintContext, document: Document, fault: Fault) -> tuple[str, ...]:
    """If no release is named: the known releases that take the value, oldest first."""
    stem, package = next(iter(CLASSES.get(document.kind, ())), ("", ""))
    if not stem or run.release(package).is_named:
        return ()
    known = known_releases(stem)
    fields = ((each, class_schema(stem, each)["properties"].get(fault.path, {})) for each in known)
    return tuple(
        f"{package} {each}" for each, field in fields if fault.place.value in _words(field)
    )


def _value_finding(fault: Fault, elsewhere: tuple[str, ...]) -> Finding:
    words = [str(each) for each in _words(fault.schema)]
    value = _refused(fault.place.value, words)
    near = nearest(value, words) if isinstance(value, str) else []
    allowed = quoted(words) if words else _range(fault.schema)
    return Finding(
        f"`{fault.path}` cannot be {shown(value)}",
        (fault.place.label("not taken"),),
        (
            f"taken: {allowed}",
            *((f"no version is given; {joined(elsewhere, 'and')} accept it",) if elsewhere else ()),
        ),
        f"did you mean {quoted(near)}?" if near else ("write one of these" if words else None),
        Fix((fault.place.replaced(near[0]),), "unsafe")
        if len(near) == 1 and value == fault.place.value
        else None,
        severity="warning" if elsewhere else None,
    )


def _refused(value: Any, words: list[str]) -> Any:
    """The refused part of a value: a list's first unknown word, else the whole value."""
    items = value if isinstance(value, list) else ()
    return next((each for each in items if isinstance(each, str) and each not in words), value)


def _words(schema: Mapping[str, Any]) -> list[Any]:
    choices = (*schema.get("anyOf", ()), *((schema["items"],) if "items" in schema else ()))
    inner = [word for each in choices for word in _words(each)]
    return [*inner, *(word for word in schema.get("enum", ()) if word is not None)]


def _range(schema: Mapping[str, Any]) -> str:
    signs = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most"}
    own = joined(
        (f"{sign} {schema[word]}" for word, sign in signs.items() if word in schema), "and"
    )
    choices = dict.fromkeys(filter(None, map(_range, schema.get("anyOf", ()))))
    return own or joined(choices, "or")


_ACCELERATE: Final = frozenset(
    {
        *("gradient_accumulation_steps", "gradient_clipping", "zero_optimization.stage"),
        *(
            f"zero_optimization.offload_{what}.{key}"
            for what in ("optimizer", "param")
            for key in ("device", "nvme_path")
        ),
        "zero_optimization.stage3_gather_16bit_weights_on_model_save",
        *("fp16.enabled", "bf16.enabled", "train_batch_size", "train_micro_batch_size_per_gpu"),
        "steps_per_print",
    }
)
"""accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `DeepSpeedPlugin.__post_init__`,
`set_mixed_precision`; accelerator.py `_prepare_deepspeed`."""
_DEFAULTS: Final[Mapping[str, str]] = {
    "zero_optimization.stage": "2",
    **{
        f"zero_optimization.offload_{what}.{key}": "none"
        for what in ("optimizer", "param")
        for key in ("device", "nvme_path")
    },
    "zero_optimization.stage3_gather_16bit_weights_on_model_save": "false",
}
"""Values that accelerate uses if its launcher was given no flag: `os.environ.get` of
ACCELERATE_DEEPSPEED_ZERO_STAGE and similar variables."""
_OFFLOADS: Final = ("zero_optimization.offload_optimizer", "zero_optimization.offload_param")


@rule("error", "init", consumers=("transformers", "accelerate"), reads=("deepspeed:*",))
def auto_never_filled(run: LintContext) -> Iterator[Finding]:
    """`auto` at a key that no trainer fills in."""
    if run.deepspeed_reader != "trainer":
        return
    for document in run.of("deepspeed"):
        tuned = TUNED if is_autotuned(run, document) else ()
        for path, place in _automatic(document).items():
            if path.startswith(tuned):
                continue
            if path in _ACCELERATE:
                if path in _DEFAULTS and not is_launched_by_accelerate(run):
                    yield _defaulted(path, place)
                continue
            if path not in filled_keys(run) and not _is_unknown(run, document, path):
                yield _never_finding(path, place)


def _automatic(document: Document) -> Mapping[str, Place]:
    """The keys set to `auto`, except in accelerate's own block and flags, which it fills in."""
    holder = document.origin
    if holder is not None and holder.kind not in TRAINERS:
        return {}
    return document.where(_never_is_auto)


def _never_is_auto(_: str, value: Any) -> bool:
    return bool(value == "auto")


def _is_unknown(run: LintContext, document: Document, path: str) -> bool:
    """Whether DeepSpeed does not know the key or one above it, which another rule reports."""
    unknown = (each.path for each in faults(run, document) if each.what == "unknown")
    return any(path == each or path.startswith(f"{each}.") for each in unknown)


def _defaulted(path: str, place: Place) -> Finding:
    name, value = path.rpartition(".")[2], _DEFAULTS[path]
    return Finding(
        f"`{path}`: auto comes to {value}",
        (place.label("auto"),),
        ("no argument of the trainer stands for it: it is the default of accelerate's plugin",),
        f"write what {name} is to be",
        severity="warning",
        consequence="silent",
    )


def _never_finding(path: str, place: Place) -> Finding:
    return Finding(
        f"`{path}` stays auto: no program fills it in",
        (place.label("auto"),),
        ("accelerate has no value for it, and ends the run: not found in kwargs",),
        "write the value, or remove it",
        # accelerate looks into these two for the device
        consequence="parse" if path in _OFFLOADS else None,
    )


_KEYS: Final[tuple[tuple[str, str, Consequence, str], ...]] = (
    ("trainer", "eval_accumulation_steps", "step", "at the first evaluation"),
    ("trainer", "torch_empty_cache_steps", "parse", "when the arguments are read"),
    ("deepspeed", "steps_per_print", "step", "at the end of the first step"),
)


@rule(
    "error",
    "step",
    consumers=("transformers", "deepspeed"),
    reads=tuple(f"{kind}:{key}" for kind, key, _, _ in _KEYS),
)
def divided_by_zero(run: LintContext) -> Iterator[Finding]:
    """A number of steps is 0, and the reader divides a count of steps by it."""
    for kind, key, consequence, when in _KEYS:
        for place in run.each(kind, key):
            if kind == "deepspeed" and run.deepspeed_reader == "trainer":
                continue  # accelerate writes inf over it
            is_number = type(place.value) in (int, float)
            if is_number and (place.value == 0 or (consequence == "parse" and place.value < 0)):
                yield _divided_finding(place, consequence, when)


def _divided_finding(place: Place, consequence: Consequence, when: str) -> Finding:
    reason = "refused" if consequence == "parse" else "ZeroDivisionError"
    return Finding(
        f"`{place.path}` is {place.value}: the run fails {when}",
        (place.label(reason),),
        ("the number of steps is divided by it",)
        if place.value == 0
        else ("it must be above 0, or left out",),
        f"remove {place.path} to turn it off",
        consequence=consequence,
    )
