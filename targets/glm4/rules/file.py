"""Rules about the configuration file of GLM-4's scripts."""

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any, Final

from tunec.compiler.consumers.schemas import class_schema, known_releases
from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import did_you_mean, nearest
from tunec.compiler.lints.conditions import is_checked, notes, severity
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.known_keys import fields_of
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.caches import cached

_KIND: Final = "glm4"
_TODAY: Final = "glm4/3f79b54.json"
_COMBINED: Final = "transformers>=4.42"
"""The releases with scripts that know `combine` and `freezeV`; older scripts know neither."""
_NEEDED: Final = ("max_input_length", "max_output_length")
_NEEDED_TODAY: Final = ("combine", "freezeV")
_EVALUATION: Final = "data_config.val_file"
_CLASSES: Final = {"training_args": "seq2seq_training_arguments", "peft_config": "lora_config"}


@rule("error", "parse", consumers=("transformers",), reads=("glm4:*",))
def glm_4_file_refused(run: LintContext) -> Iterator[Finding]:
    """The classes of GLM-4's scripts refuse a configuration, or it makes the run fail."""
    for document in run.of(_KIND):
        if document.format == "shell":  # the line that starts the script is the target's file too
            continue
        yield from _unknown(run, document)
        yield from _missing(run, document)
        yield from _ungenerating(document)
        yield from _data(document)
        yield from _frozen(run, document)


def _unknown(run: LintContext, document: Document) -> Iterator[Finding]:
    """Unknown keys in a block; key-outside-its-block reports those at the top."""
    for path, place in document.found.items():
        block, _, key = path.rpartition(".")
        known = _known(document, block) if block else None
        if known is not None and key not in known:
            yield _refused(place, f"in {block}", nearest(key, known))
        if path in _NEEDED_TODAY and run.runs(_COMBINED) is False:
            yield _refused(place, f"beside {run.release('transformers')}", ())


def _refused(place: Place, where: str, near: Sequence[str]) -> Finding:
    return Finding(
        f"GLM-4's scripts know no key `{place.path.rpartition('.')[2]}` {where}",
        (place.key_label("refused"),),
        ("TypeError: got an unexpected keyword argument",),
        did_you_mean(near) or "remove it",
        Fix((place.renamed(near[0]),), "unsafe") if len(near) == 1 else None,
    )


def _known(document: Document, block: str) -> frozenset[str] | None:
    """The keys that a block accepts; None if they are not known for the block."""
    if block == "data_config":
        return frozenset(schema(_TODAY)["properties"][block]["properties"])
    stem = _CLASSES.get(block)
    if stem is None or (block == "peft_config" and not _is_lora(document)):
        return None
    return _fields(stem)


def _is_lora(document: Document) -> bool:
    return bool(document.value("peft_config.peft_type") == "LORA")


@cached()
def _fields(stem: str) -> frozenset[str]:
    """The fields of a class in any release; key-of-another-release distinguishes releases."""
    releases = known_releases(stem)
    return frozenset(name for each in releases for name in class_schema(stem, each)["properties"])


def _missing(run: LintContext, document: Document) -> Iterator[Finding]:
    at = document.get("data_config") or next(iter(document.found.values()), None)
    is_today = is_checked(run, _COMBINED) and not _may_be_chatglm3(document)
    today = _NEEDED_TODAY if is_today else ()
    lacking = [key for key in (*_NEEDED, *today) if document.get(key) is None]
    if at is None or not lacking:
        return
    since = "" if set(lacking) & set(_NEEDED) else _COMBINED
    yield Finding(
        f"GLM-4's configuration has no {', '.join(lacking)}",
        (at.key_label("beside it"),),
        notes(run, "TypeError: missing required positional arguments", since),
        f"write {', '.join(lacking)}",
        severity=severity(run, since),
    )


def _ungenerating(document: Document) -> Iterator[Finding]:
    block = document.get("training_args")
    if block is not None and document.get("training_args.generation_config") is None:
        yield Finding(
            "training_args has no generation_config",
            (block.key_label("none in it"),),
            ("GenerationConfig(**None): TypeError, argument after ** must be a mapping",),
            "write generation_config: {max_new_tokens: 512}",
            severity=None if document.get("training_args.predict_with_generate") else "warning",
        )


def _data(document: Document) -> Iterator[Finding]:
    at = document.get("data_config.train_file")
    ending = PurePath(at.value).suffix if at is not None and isinstance(at.value, str) else ".jsonl"
    if at is not None and ending != ".jsonl" and not _may_be_chatglm3(document):
        yield Finding(
            f"GLM-4's scripts load no {ending or at.value} files",
            (at.label("no .jsonl"),),
            ("_load_datasets: Cannot load dataset in the format",),
            "write the data as one JSON object a line, in a file named *.jsonl",
            consequence="init",
        )
    when = document.get("training_args.eval_strategy")
    held = document.get("data_config")
    if when is None or when.value in ("no", False) or held is None:
        return
    if document.value(_EVALUATION) is None and _EVALUATION not in document.unknown:
        yield Finding(
            f"eval_strategy {when.value} needs a val_file",
            (when.label("stays as it is"), held.key_label("no val_file", primary=False)),
            (
                "the scripts then set evaluation_strategy to no, a name that is no longer read",
                "the Trainer is to evaluate, and has no data: ValueError",
            ),
            "write eval_strategy: 'no', or name a val_file",
            consequence="init",
        )


def _may_be_chatglm3(document: Document) -> bool:
    """Whether the file may be for ChatGLM3's script.

    That script has neither of the keys, and loads formats that GLM-4's scripts do not:
    zai-org/ChatGLM3 finetune_demo/finetune_hf.py `FinetuningConfig`, `_load_datasets`.
    """
    at = document.get("data_config.train_file")
    is_other = at is not None and PurePath(str(at.value)).suffix in (".json", ".csv")
    return is_other and not {*_NEEDED_TODAY} & {*document.keys, *document.unknown}


def _frozen(run: LintContext, document: Document) -> Iterator[Finding]:
    """freezeV also freezes the adapters of the vision tower, because it is read after them."""
    at, names = document.get("freezeV"), document.get("peft_config.target_modules")
    is_seen = run.model is not None and run.model.architecture.kind == "vision-language"
    if at is None or at.value is not True or names is None or not is_seen:
        return
    if "query_key_value" in (names.value if isinstance(names.value, list) else [names.value]):
        yield Finding(
            "freezeV freezes the adapters of the vision tower too",
            (at.label("read after the adapters are put in"), names.label("", primary=False)),
            ("query_key_value is a layer of the tower too: its adapters stay as they began",),
            "set freezeV to false, or name the layers of the language model by an expression",
            severity="warning",
            consequence="silent",
        )


_COMMITS: Final = ("da2fe37", "f6ee34e", "3f79b54")


@rule("error", "parse", consumers=("transformers",), reads=("glm4:data_config",))
def key_outside_its_block(run: LintContext) -> Iterator[Finding]:
    """A key at the top of GLM-4's file belongs to its training arguments."""
    for document in run.of("glm4"):
        if document.is_view or document.get("data_config") is None:
            continue
        for path, place in document.found.items():
            if "." in path or path in _top():
                continue
            near = nearest(path, _top())[:1]
            home = "training_args" if path in _arguments() else None
            yield Finding(
                f"GLM-4's file has no key `{path}` at the top",
                (place.key_label("refused"),),
                ("FinetuningConfig is made of the keys: unexpected keyword argument",),
                f"write it below {home}"
                if home
                else f"did you mean `{near[0]}`?"
                if near
                else "remove it",
            )


@cached()
def _top() -> frozenset[str]:
    found: list[dict[str, Any]] = [schema(f"glm4/{each}.json") for each in _COMMITS]
    return frozenset(name for each in found for name in each["properties"]) | {"swanlab"}


@cached()
def _arguments() -> frozenset[str]:
    releases = known_releases("training_arguments")
    return frozenset[str]().union(*(fields_of("training_arguments", each) for each in releases))
