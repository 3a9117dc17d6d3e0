"""Overrides on a command line, as keys of the config that their program composes under them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.frontend.nodes import Node
from tunec.compiler.frontend.shell_references import OVER_A_FILE
from tunec.compiler.lints.document import Document
from tunec.compiler.translate.scripts import not_understood
from tunec.schemas.frozen import replace

_READER: Final = "verl"
_NAME: Final = "--config-name"
_MEGATRON: Final = "megatron"


def with_overrides(documents: Iterable[Document]) -> tuple[Document, ...]:
    """The documents, with overrides merged into the config under them if each is the only one."""
    every = tuple(documents)
    over, configs = _parts(every)
    if len(over) != 1 or len(configs) != 1:
        return every
    (said,), (config,) = over, configs
    whole = replace(
        said,
        kind=config.kind,
        target=config.target,
        file=config.file,
        root=_merged(config.root, said.root, said.unknown),
        unknown=config.unknown | said.unknown,
        hidden={**config.hidden, **said.hidden},
    )
    return tuple(whole if each is said else each for each in every if each is not config)


def _parts(documents: Sequence[Document]) -> tuple[list[Document], list[Document]]:
    """The overrides and the configs that may lie under them."""
    over = [each for each in documents if each.kind == OVER_A_FILE]
    configs = [each for each in documents if each.kind == _READER and each.format == "yaml"]
    return over, configs


def _merged(under: Node, over: Node, unknown: frozenset[str], path: str = "") -> Node:
    """A mapping with the values above it, without those that only a run shows."""
    fields = dict(under.fields or {})
    for key, node in (over.fields or {}).items():
        below = fields.get(key)
        is_mapping = below is not None and below.fields is not None and node.fields is not None
        inside = f"{path}{key}."
        fields[key] = _merged(below, node, unknown, inside) if below and is_mapping else node
    kept = {key: node for key, node in fields.items() if f"{path}{key}" not in unknown}
    return replace(under, fields=kept)


def without_their_config(documents: Sequence[Document]) -> Iterator[Diagnostic]:
    """A fault for each command whose overrides are composed over a config that was not read."""
    over, configs = _parts(documents)
    if len(over) == 1 and len(configs) == 1:
        return
    for each in over:
        name = _config_name(each, documents)
        is_megatron = _MEGATRON in name
        yield not_understood(
            f"the overrides of {each.name} have no counterpart: {name} is not read",
            (Label("composed over another config", each.start()),),
            "write a spec, for trl or for verl with FSDP"
            if is_megatron
            else "give that config beside the script",
            (_why(is_megatron),),
        )


def _why(is_megatron: bool) -> str:
    if is_megatron:
        return "it trains by Megatron-Core, for which verl has no plan: its engine is FSDP"
    return "a key that the command does not override has the value of that config"


def _config_name(over: Document, documents: Iterable[Document]) -> str:
    """The config that the command names."""
    starts = (each for each in documents if each.name == over.name and each.kind == "launch")
    words = [str(word) for each in starts for word in each.value("script") or ()]
    found = next((at for at, word in enumerate(words) if word.startswith(_NAME)), len(words))
    named = [part for word in words[found : found + 2] for part in word.split("=", 1)]
    return named[1] if len(named) > 1 else "its config"
