"""A value that is none of the words, or outside the range, that its reader takes."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.consumers.schemas import class_schema, known_releases
from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import joined, nearest, quoted, shown
from tunec.compiler.lints.document import TRL, Document
from tunec.compiler.lints.effective import CLASSES
from tunec.compiler.lints.keys.known import is_whole
from tunec.compiler.lints.keys.number_as_text import number_of
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.schemas import Fault, faults, is_in_range, kinds_of

_KINDS: Final = ("hf", *TRL, "llamafactory")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("deepspeed", *_KINDS, "peft"):
        if not is_whole(document):
            continue
        for fault in faults(run, document):
            is_out = fault.what == "value" or _is_beyond_as_number(document, fault)
            if is_out and not _is_taken(fault):
                found = _finding(fault, _elsewhere(run, document, fault))
                if document.kind in _KINDS:
                    found = replace(found, consequence="parse")
                yield _unchecked(found, fault.path) if document.kind == "deepspeed" else found


_UNCHECKED: Final = {"gradient_clipping": "no gradient is clipped by a norm below 0"}
"""Keys of ds_config.json whose value nothing compares with its bounds, and what comes of it."""


def _unchecked(found: Finding, path: str) -> Finding:
    if path not in _UNCHECKED:
        return found
    return replace(found, notes=(*found.notes, _UNCHECKED[path]), consequence="silent")


def _is_beyond_as_number(document: Document, fault: Fault) -> bool:
    """Whether pydantic makes a number of a text, and refuses that: `sub_group_size: "-1"`."""
    value = fault.place.value
    number = number_of(value) if isinstance(value, str) and fault.is_checked else None
    choices = [each for each in fault.schema.get("anyOf", (fault.schema,)) if kinds_of(each)]
    if document.kind != "deepspeed" or number is None or not choices:
        return False
    return not any(is_in_range(number, each) for each in choices)


def _is_taken(fault: Fault) -> bool:
    """Whether it is taken although the schema has no word for it.

    peft 0.10.0 to 0.21.2 tuners/lora/layer.py: `pissa_niter_[number]`; gaussian and olora in any
    letters; tuners/tuners_utils.py: `boft_only` and its like are the biases of other methods.
    """
    value, name = fault.place.value, fault.path.rpartition(".")[2]
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


def _elsewhere(run: Run, document: Document, fault: Fault) -> tuple[str, ...]:
    """Where nobody names the release: the known ones that take the value, oldest first."""
    stem, package = next(iter(CLASSES.get(document.kind, ())), ("", ""))
    if not stem or run.release(package).is_named:
        return ()
    known = sorted(known_releases(stem), key=Version)
    fields = ((each, class_schema(stem, each)["properties"].get(fault.path, {})) for each in known)
    return tuple(
        f"{package} {each}" for each, field in fields if fault.place.value in _words(field)
    )


def _finding(fault: Fault, elsewhere: tuple[str, ...]) -> Finding:
    words = [str(each) for each in _words(fault.schema)]
    value = _refused(fault.place.value, words)
    near = nearest(value, words) if isinstance(value, str) else []
    allowed = quoted(words) if words else _range(fault.schema)
    return Finding(
        f"`{fault.path}` cannot be {shown(value)}",
        (fault.place.label("not taken"),),
        (
            f"taken: {allowed}",
            *(
                (f"nobody names the version; {joined(elsewhere, 'and')} take it",)
                if elsewhere
                else ()
            ),
        ),
        f"did you mean {quoted(near)}?" if near else ("write one of these" if words else None),
        Fix((fault.place.replaced(near[0]),), "unsafe")
        if len(near) == 1 and value == fault.place.value
        else None,
        severity="warning" if elsewhere else None,
    )


def _refused(value: Any, words: list[str]) -> Any:
    """The value, or of a list the first word that is none of those."""
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


RULE = Rule(
    name="value-out-of-range",
    severity="error",
    consequence="init",
    consumers=("deepspeed", "transformers", "peft"),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/zero/config.py, offload_config.py: enumerations "
            "and bounds; runtime/config.py `get_gradient_clipping`; runtime/zero/stage_1_and_2.py, "
            "stage3.py: clip_grad > 0"
        ),
        "transformers 5.23.0 trainer_utils.py, training_args.py: enumerations",
    ),
    check=_check,
)
