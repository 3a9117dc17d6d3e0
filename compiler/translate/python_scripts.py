"""What a Python script gives its trainer: data by `load_dataset`, a model's head, no adapter."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import joined
from tunec.compiler.frontend.nodes import Node, plain
from tunec.compiler.frontend.python_calls import Call
from tunec.compiler.frontend.python_names import Scope
from tunec.compiler.ir.ledger import Definition, Ledger, Rank
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRAINERS, Document
from tunec.compiler.lints.python_files import LOAD_DATASET, calls_of
from tunec.compiler.translate.scripts import not_understood
from tunec.schemas.data_paths import data_name, first_of
from tunec.schemas.frozen import replace
from tunec.schemas.source import Span

_OF_FILES: Final = frozenset({"json", "csv", "parquet", "text", "arrow", "imagefolder"})
"""Names with which `load_dataset` reads files: datasets 3.6.0 to 5.2.0 packaged_modules/__init__.py
`_PACKAGED_DATASETS_MODULES`."""
_TRAIN: Final = "train_dataset"
_EVALUATION: Final = "eval_dataset"


class _Data(Struct, frozen=True):
    """What one argument of a trainer is given."""

    paths: tuple[str, ...]
    most: int
    """The most samples, from the first on; 0: all."""
    span: Span
    changed: tuple[str, ...] = ()
    """The methods that are called on it before it is given, without the choice of the first."""


def of_scripts(run: LintContext) -> Iterator[Definition]:
    """The data of each script that trains, as far as its calls name it, and whether it adapts."""
    for document in _scripts(run):
        found = _given(document)
        train, evaluation = found.get(_TRAIN), found.get(_EVALUATION)
        if train is not None:
            values = {
                "data.train": train.paths[0],
                "data.more": train.paths[1:],
                "data.limits": (train.most,) if train.most else (),
            }
            yield from _definitions(document, values, train.span, "set by load_dataset")
        if evaluation is not None and len(evaluation.paths) == 1 and _evaluates(document):
            values = {"data.evaluation": evaluation.paths[0]}
            yield from _definitions(document, values, evaluation.span, "set by load_dataset")
        yield from _of_unsloth(document, run)
        if MENTIONS_ADAPTERS.search(document.text) is None:
            reason = "the script makes no adapter"
            yield from _definitions(document, {"adapter.kind": "none"}, document.start(), reason)


# ── Unsloth ──────────────────────────────────────────────────────────────────────────────────────

_UNSLOTH: Final = "unsloth"
_BITS: Final = ("load_in_4bit", "load_in_8bit", "load_in_16bit", "load_in_fp8", "full_finetuning")
_LENGTH: Final = "max_seq_length"
OF_UNSLOTH: Final = frozenset({_LENGTH})
"""Arguments of Unsloth's that are read here, and of no class of transformers."""
_USUAL_LENGTH: Final = 2048
_USUAL_ADAPTER: Final[Mapping[str, tuple[str, float]]] = {
    "r": ("adapter.rank", 16),
    "lora_alpha": ("adapter.alpha", 16.0),
    "lora_dropout": ("adapter.dropout", 0.0),
}
"""unsloth 2026.10.9 models/llama.py `FastLlamaModel.get_peft_model`: arguments with defaults."""


def fast_loads(document: Document) -> list[Call]:
    """The calls with which a script loads models by Unsloth."""
    calls = calls_of(document.name, document.text)
    every = () if calls is None else calls.found
    return [e for e in every if e.package == _UNSLOTH and e.name == "from_pretrained"]


def _of_unsloth(document: Document, run: LintContext) -> Iterator[Definition]:
    """What Unsloth loads if a script leaves it out, and what it names in its own words.

    unsloth 2026.10.9 models/loader.py `FastLanguageModel.from_pretrained`, whose 4 bits are nf4
    with quantized constants (models/llama.py `bnb_config`).
    """
    loads = fast_loads(document)
    if len(loads) != 1:
        return
    (call,), fields = loads, loads[0].fields
    path = _text(call, 0, "model_name")
    length = fields.get(_LENGTH)
    told = _USUAL_LENGTH if length is None else length.value
    values: dict[str, Any] = {
        **({"model.path": path} if path is not None else {}),
        **({"data.sequence": told} if isinstance(told, int) else {}),
        **({} if any(key in fields for key in _BITS) else {"quantization.format": "nf4"}),
        "quantization.double": True,
    }
    for each in run.documents:
        if (each.name, each.kind) == (document.name, "peft"):
            absent = (key for key in _USUAL_ADAPTER if key not in each.found)
            values |= dict(_USUAL_ADAPTER[key] for key in absent)
    yield from _definitions(document, values, call.span, "set by Unsloth")


# ── adapters and evaluation ──────────────────────────────────────────────────────────────────────


MENTIONS_ADAPTERS: Final = re.compile(r"(?i)peft|lora|adapter")


def _evaluates(document: Document) -> bool:
    """Whether the trainer evaluates while it trains; by default it does not."""
    told = (document.value(key) for key in ("eval_strategy", "evaluation_strategy"))
    return any(each not in (None, "no") for each in told)


def left_in_code(run: LintContext, ledger: Ledger) -> Iterator[Diagnostic]:
    """What scripts do and a spec has no words for: an unknown head, data that is rewritten."""
    yield from _unplanned_heads(run)
    yield from _prepared(run, ledger)
    yield from _accelerated(run)


def _accelerated(run: LintContext) -> Iterator[Diagnostic]:
    """A note that a script gives a model of Unsloth's to TRL's trainer, for which its spec is.

    `unsloth train` decides the optimizer and more by itself, so that few scripts are a spec for it.
    """
    for document in _scripts(run):
        for call in fast_loads(document)[:1]:
            yield Diagnostic(
                "not-carried-over",
                "note",
                f"{document.name} loads the model by Unsloth: files for other trainers do without "
                "the kernels that save memory and time",
                (Label("loaded here", call.span),),
                help="compile to unsloth for its own command, and remove what the command decides",
            )


def _prepared(run: LintContext, ledger: Ledger) -> Iterator[Diagnostic]:
    """A note that a script may change its data after it is read."""
    for document in _scripts(run):
        train = _given(document).get(_TRAIN)
        winner = ledger.winner("data.train")
        is_read = train is not None and winner is not None and winner.span == train.span
        if train is not None and is_read and train.changed:
            yield Diagnostic(
                "not-carried-over",
                "note",
                f"the new files name the data that {document.name} reads, and nothing of what it "
                f"does with it afterwards: {joined(train.changed, 'and')}",
                (Label("read here", train.span),),
                help=_OF_PARTS
                if _DIVIDES in train.changed
                else "prepare the data in a file of its own, if samples are selected or rewritten",
            )


_OF_PARTS: Final = (
    "write the samples that are held out to a file of their own, and name it in data.evaluation"
)
_HEAD: Final = re.compile(r"For(Sequence|Token)Classification\.from_pretrained$")
_LABELS: Final = "num_labels"
_USUAL_LABELS: Final = 2
"""transformers 5.23.0 configuration_utils.py `PreTrainedConfig.num_labels`: of a config without
labels."""


def task_of(run: LintContext) -> Mapping[tuple[str, ...], Any]:
    """The field of a spec for the head that every model of the run's scripts has; else empty."""
    heads = [_head(each) for each in _models(run)]
    first = next(iter(heads), None)
    return {("task",): first} if first is not None and all(e == first for e in heads) else {}


def complete_scripts(run: LintContext) -> frozenset[str]:
    """The scripts whose calls name every argument, so that what they leave out is the default."""
    names = set[str]()
    for document in _scripts(run):
        calls = calls_of(document.name, document.text)
        every = () if calls is None else calls.found
        loads = [each for each in every if each.name == "from_pretrained"]
        if loads and not any(each.is_open for each in every):
            names.add(document.name)
    return frozenset(names)


_UNPLANNED: Final = re.compile(r"For(QuestionAnswering|CTC)\.from_pretrained$")


def _unplanned_heads(run: LintContext) -> Iterator[Diagnostic]:
    """An error for each model with a head for which a spec has no task."""
    for call in _models(run):
        if _UNPLANNED.search(call.origin) is not None:
            yield not_understood(
                f"a spec has no task for the head of {call.holder}",
                (Label("loaded here", call.span),),
                "plan another task of its body: `sequence_classification`, `token_classification`",
            )


def _models(run: LintContext) -> Iterator[Call]:
    for document in _scripts(run):
        calls = calls_of(document.name, document.text)
        every = () if calls is None else calls.found
        yield from (each for each in every if each.name == "from_pretrained")


def _head(call: Call) -> Mapping[str, Any] | None:
    found = _HEAD.search(call.origin)
    if found is None:
        return None
    node = call.fields.get(_LABELS)
    count = node.value if node is not None and isinstance(node.value, int) else _USUAL_LABELS
    return {f"{found[1].lower()}_classification": {"labels": count}}


def _scripts(run: LintContext) -> Iterator[Document]:
    every = (each for each in run.documents if each.format == "python" and each.kind in TRAINERS)
    yield from {each.name: each for each in every}.values()


def _definitions(
    document: Document, values: Mapping[str, Any], span: Span, reason: str
) -> Iterator[Definition]:
    for slot, value in values.items():
        yield Definition(slot, value, Rank.OBSERVED, document.name, reason, span=span)


# ── the calls ────────────────────────────────────────────────────────────────────────────────────


def _given(document: Document) -> Mapping[str, _Data]:
    """What the script's trainers are given, if they agree; a trainer may get a split by its key."""
    calls = calls_of(document.name, document.text)
    every = () if calls is None else calls.found
    loads = {id(each.site.call): each for each in every if each.origin == LOAD_DATASET}
    trainers = [each for each in every if each.name.endswith("Trainer")]
    is_divided = _DIVIDES in document.text
    found: dict[str, _Data] = {}
    for argument in (_TRAIN, *(() if is_divided else (_EVALUATION,))):
        given = [_argument(each, argument, loads, is_divided=is_divided) for each in trainers]
        told = {(each.paths, each.most): each for each in given if each is not None}
        if len(told) == 1 and None not in given:
            found[argument] = next(iter(told.values()))
    return found


_DIVIDES: Final = "train_test_split"
"""The method with which a script holds out samples: the parts have no names on disk."""


def _argument(
    trainer: Call, argument: str, loads: Mapping[int, Call], *, is_divided: bool
) -> _Data | None:
    value = next((e.value for e in trainer.site.call.keywords if e.arg == argument), None)
    roots = () if value is None else tuple(_roots(value, trainer.site.scope, loads, _Path()))
    if len({id(each.load) for each in roots}) != 1:
        return None
    path = roots[-1]
    data = _loaded(path.load, None if is_divided else path.key)
    return None if data is None else _changed(data, roots)


def _changed(data: _Data, roots: Sequence["_Root"]) -> _Data:
    """The data with what the script does to it: the choice of its first samples is a limit."""
    steps = {id(each): each for root in roots for each in root.steps}
    first = next(iter(roots[0].steps), None) if len(roots) == 1 else None
    most = 0 if first is None or data.most else _first_samples(first)
    names = [_method(each) for each in steps.values() if not (most and each is first)]
    return replace(data, most=most or data.most, changed=tuple(dict.fromkeys(names)))


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _first_samples(call: ast.Call) -> int:
    """The number N of `.select(range(N))`; 0: it chooses others, or N is only known at run time."""
    match call:
        case ast.Call(
            func=ast.Attribute(attr="select"),
            args=[
                ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(most))]),
            ],
        ) if not isinstance(most, bool):
            return most
    return 0


class _Path(Struct, frozen=True):
    """What lies between an argument and the call that loads it, from the argument on."""

    key: str | None = None
    """The split that is chosen."""
    steps: tuple[ast.Call, ...] = ()
    """The methods that are called, the first of them first."""


class _Root(_Path, frozen=True, kw_only=True):
    """The call that loads data, and what a script does with it."""

    load: Call


def _roots(
    value: ast.expr, scope: Scope, loads: Mapping[int, Call], path: _Path, depth: int = 8
) -> Iterator[_Root]:
    """The calls that made a value, through methods such as `map`, each with the chosen split."""
    if isinstance(value, ast.Call) and id(value) in loads:
        yield _Root(path.key, path.steps, load=loads[id(value)])
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        further = replace(path, steps=(value, *path.steps))
        yield from _roots(value.func.value, scope, loads, further, depth)
    elif isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
        chosen = value.slice.value
        if isinstance(chosen, str):
            yield from _roots(value.value, scope, loads, replace(path, key=chosen), depth)
    elif isinstance(value, ast.Name) and depth > 0:
        found = scope.found(value.id)
        for each in found[0] if found is not None else ():
            if each.value is not None:
                yield from _roots(each.value, each.scope or scope, loads, path, depth - 1)


def _loaded(call: Call, key: str | None) -> _Data | None:
    """What a call reads; of several splits the one of `key`."""
    path = _text(call, 0, "path")
    said = _text(call, None, "split")
    if path is None or ("split" in call.fields and said is None):
        return None
    if path in _OF_FILES:
        files = _files(call.fields.get("data_files"), key)
        most = first_of(said)[1]
        return _Data(files, most, call.span) if files and _is_whole(said) else None
    split, most = first_of(key or said)
    name = data_name(path, _text(call, 1, "name"), split)
    return _Data((name,), most, call.span)


def _is_whole(split: str | None) -> bool:
    """Whether a split of files is all of them, or their first samples."""
    return first_of(split)[0] in (None, "train")


def _files(given: Node | None, key: str | None) -> tuple[str, ...]:
    """The files of a call, or those of one split."""
    value = None if given is None else plain(given)
    if isinstance(value, Mapping):
        value = value.get(key or "train")
    elif key not in (None, "train"):
        return ()
    several = value if isinstance(value, list) else [value]
    named = [each for each in several if isinstance(each, str) and each]
    return tuple(named) if len(named) == len(several) else ()


def _text(call: Call, at: int | None, name: str) -> str | None:
    """A literal text that is passed by its place or its name."""
    placed = call.positional[at : at + 1] if at is not None else ()
    node = next(iter(placed), None) or call.fields.get(name)
    return node.value if node is not None and isinstance(node.value, str) else None
