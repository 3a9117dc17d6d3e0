"""Rules about data sets and sections of an Axolotl file."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.diagnostics.wording import nearest_one
from tunec.compiler.lints.conditions import entries, items
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place, meant
from tunec.compiler.lints.facts.known_keys import keys_ever
from tunec.compiler.lints.facts.training_loop import configs, schemas_ever, schemas_here
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.caches import cached
from tunec.schemas.frozen import replace
from tunec.schemas.models.chat_templates import lacks_template
from tunec.targets.axolotl.data import OF_TOKENIZER

_LISTS: Final = ("datasets", "test_datasets")
_MEANT: Final = {
    "train_on_split": "split",
    "subset": "name",
    "config": "name",
    "field_conversations": "field_messages",
    "messages_field": "field_messages",
}
"""Common wrong keys, and the key that has the effect."""


@rule("warning", "silent", consumers=("axolotl",), reads=("axolotl:*",))
def data_set_key_unread(run: LintContext) -> Iterator[Finding]:
    """A data set has a key that Axolotl's schema of data sets does not have."""
    for document in configs(run):
        known = _keys(schemas_ever(document))
        for key in _LISTS if known else ():
            for name, at in items(document, key):
                if name not in known:
                    found = _data_set_finding(name, at, known)
                    is_old = name in _FORMER and not run.release("axolotl").is_known
                    yield replace(found, severity="note") if is_old else found
        for path, at in document.found.items():
            if "." not in path and path in known and path not in keys_ever("axolotl"):
                yield _at_the_top(path, at)


_FORMER: Final = frozenset({"train_on_split"})
"""Keys that axolotl 0.3 to 0.4 utils/data.py `load_tokenized_prepared_datasets` read."""


def _at_the_top(path: str, at: Place) -> Finding:
    return Finding(
        f"`{path}` is a key of a data set, and stands at the top of the file",
        (at.key_label("not read"),),
        ("a key that the schema does not have is silently dropped",),
        f"write {path} below the data set in datasets",
    )


@cached()
def _keys(names: tuple[str, ...]) -> frozenset[str]:
    found: set[str] = set()
    for name in names:
        kinds: dict[str, Any] = schema(name).get("$defs", {})
        for kind, said in kinds.items():
            if kind.endswith("Dataset"):
                found |= set(said.get("properties", {}))
    return frozenset(found)


def _data_set_finding(name: str, at: Place, known: frozenset[str]) -> Finding:
    return Finding(
        f"a data set has no key `{name}`",
        (at.key_label("not read"),),
        ("a key that the schema of a data set does not have is silently dropped",),
        *meant(at, _MEANT.get(name) or nearest_one(name, known)),
    )


_PAIRS: Final = ("default", "argilla_chat", "icr", "intel", "prompt_pairs", "ultra")
_MARKS: Final = ("argilla", "argilla_chat", "intel", "prompt_pairs", "ultra")
_OF_DPO: Final[Mapping[str, tuple[str, ...]]] = {
    "chat_template": ("default", "argilla_chat"),
    "chatml": _PAIRS,
    "llama3": _PAIRS,
    "passthrough": ("default",),
    "user_defined": ("default",),
    "zephyr": ("nectar",),
}
_KNOWN: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    **dict.fromkeys(("dpo", "ipo", "simpo"), _OF_DPO),
    "kto": {"chatml": _MARKS, "llama3": _MARKS, "user_defined": ("default",)},
    "orpo": {"chat_template": ("load", "argilla")},
    "grpo": {},
    "gdpo": {},
}
"""Modules and their functions by method: axolotl 0.8.1 to 0.19.0 prompt_strategies/dpo, kto, orpo.
A type without a point is its module's `default`.
GRPO has none: what is not a module of the user's own goes to DPO's, which wants chosen and rejected
(KeyError, axolotl-ai-cloud/axolotl#3269, #2986)."""
_OF_SAMPLES: Final = frozenset(
    {
        *("alpaca", "alpaca_chat", "alpaca_instruct", "alpaca_w_system", "completion"),
        *("context_qa", "creative_acr", "input_output", "llama2_chat", "metharme", "orcamini"),
        *("pygmalion", "pretrain", "stepwise_supervised", "chat_template", "messages"),
    }
)
"""Modules of prompt_strategies for samples without a preference; a name that is neither theirs nor
another method's may be a module of the user's own."""


@rule("warning", "load", consumers=("axolotl",), reads=("axolotl:rl",))
def data_set_type_of_another_method(run: LintContext) -> Iterator[Finding]:
    """The preference method of the file does not know the type of a data set."""
    for document in configs(run):
        method = document.get("rl")
        known = _KNOWN.get(str(method.value).lower()) if method is not None else None
        for name, at in items(document, "datasets") if known is not None else ():
            if name == "type" and isinstance(at.value, str) and method and known is not None:
                yield from _of_another_method(at, method, known)


def _of_another_method(
    at: Place, method: Place, known: Mapping[str, tuple[str, ...]]
) -> Iterator[Finding]:
    module, point, function = str(at.value).partition(".")
    functions = known.get(module)
    if functions is None and module not in _OF_SAMPLES | set(_OF_DPO):
        return
    if functions is not None and (function if point else "default") in functions:
        return
    taken = sorted(f"{name}.{each}" for name, held in known.items() for each in held)
    yield Finding(
        f"a data set for rl {method.value} cannot be of type {at.value}",
        (at.label("not found" if taken else "a type of pairs"), method.label("", primary=False)),
        (f"known: {', '.join(taken)}",) if taken else ("prompts have no chosen and rejected",),
        f"write {taken[0]}, with the fields of the data set"
        if taken
        else "name a function of your own (`module.function`) that makes the prompt",
    )


@rule("error", "parse", consumers=("axolotl",), reads=("axolotl:rl",))
def kto_needs_every_column(run: LintContext) -> Iterator[Finding]:
    """KTO runs in Axolotl without remove_unused_columns: false."""
    for document in run.of("axolotl"):
        at, columns = document.get("rl"), document.get("remove_unused_columns")
        if document.is_view or at is None or at.value != "kto":
            continue
        if columns is not None and columns.value is False:
            continue
        key = "remove_unused_columns"
        edit = columns.replaced(value=False) if columns else document.added(key, value=False)
        yield Finding(
            "rl kto needs remove_unused_columns: false",
            (columns.label("refused") if columns is not None else at.label("refused alone"),),
            ("KTO's own columns are none of the model's arguments",),
            "write remove_unused_columns: false",
            Fix((edit,), "safe") if edit is not None else None,
        )


_PREFIX: Final = "fsdp_"
"""The prefix that Axolotl removes from keys of `fsdp_config` (0.13.2, 0.19.0
`check_fsdp_config_kwargs_prefix`)."""

_AS_BY_ITSELF: Final[Mapping[str, Any]] = {
    "sharding_strategy": "FULL_SHARD",
    "limit_all_gathers": True,
    "backward_prefetch": "BACKWARD_PRE",
    "forward_prefetch": False,
}
"""Keys of FSDP 1 with their defaults (accelerate 1.15.0 utils/dataclasses.py
`FullyShardedDataParallelPlugin`); dropping such a key loses nothing."""


@rule("warning", "silent", consumers=("axolotl",), reads=("axolotl:*",))
def section_key_unread(run: LintContext) -> Iterator[Finding]:
    """One of Axolotl's sections has a key that the section does not know."""
    for document in configs(run):
        known = _sections(schemas_here(run, document))
        for path, at in document.found.items() if known else ():
            section, _, name = path.partition(".")
            keys = known.get(section)
            is_lost = keys and name and "." not in name and not _is_known(section, name, keys)
            if keys and is_lost and _AS_BY_ITSELF.get(name.removeprefix(_PREFIX), at) != at.value:
                yield _section_finding(section, name, at, keys)


def _is_known(section: str, name: str, keys: frozenset[str]) -> bool:
    bare = name.removeprefix(_PREFIX)
    return name in keys or (section == "fsdp_config" and (bare in keys or bare == "version"))


@cached()
def _sections(names: tuple[str, ...]) -> Mapping[str, frozenset[str]]:
    """The keys of each section that all the given schemas close."""
    tables = [_closed(name) for name in names]
    every = set(tables[0]).intersection(*tables) if tables else set()
    return {key: frozenset().union(*(table[key] for table in tables)) for key in every}


def _closed(name: str) -> Mapping[str, frozenset[str]]:
    read = schema(name)
    named: Mapping[str, Any] = read.get("$defs", {})
    found: dict[str, frozenset[str]] = {}
    for key, said in read.get("properties", {}).items():
        parts = [each for each in said.get("anyOf", (said,)) if each.get("type") != "null"]
        refs = [named.get(str(each.get("$ref", "")).rpartition("/")[2], {}) for each in parts]
        held = [frozenset(each.get("properties", ())) for each in refs]
        if len(held) == 1 and held[0] and not refs[0].get("additionalProperties"):
            found[key] = held[0]
    return found


def _section_finding(section: str, name: str, at: Place, keys: frozenset[str]) -> Finding:
    return Finding(
        f"{section} has no key `{name}`",
        (at.key_label("not read"),),
        ("a key that the schema of a section does not have is silently dropped",),
        *meant(at, nearest_one(name, keys)),
    )


@rule("error", "load", consumers=("axolotl",), reads=("axolotl:base_model",))
def template_the_tokenizer_lacks(run: LintContext) -> Iterator[Finding]:
    """Conversations are formed by the chat template of a tokenizer that has none."""
    source = lacks_template(run.model_name or "")
    for document in configs(run) if source else ():
        if document.value("chat_template", OF_TOKENIZER) != OF_TOKENIZER:
            continue
        for each in entries(document, "datasets"):
            kind = each.get("type")
            if kind and kind.value == "chat_template" and "chat_template" not in each:
                yield Finding(
                    f"the tokenizer of {run.model_name} has no chat template",
                    (kind.label("formed by it"),),
                    (f"its tokenizer_config.json names none: {source}",),
                    "write chat_template: jinja with chat_template_jinja, or name a template of "
                    "Axolotl whose tokens the model knows",
                )
