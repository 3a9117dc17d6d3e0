"""Which files a document names, and whether a file is one of them."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tunec.compiler.frontend.nodes import Node
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.formats import Parsed
from tunec.compiler.lints.neighbours import is_file_name

_REFERENCES: Final = (
    *("deepspeed", "deepspeed_config.deepspeed_config_file", "deepspeed_config"),
    "training_args.deepspeed",
)
"""Keys that name another file of the run: TrainingArguments, LLaMA-Factory and Axolotl; accelerate;
SimpleTuner and accelerate's command line; GLM-4's scripts."""


def named_by(documents: Iterable[Document]) -> frozenset[str]:
    """The files that documents name."""
    return frozenset(str(place.value) for each in documents for place in references(each))


def is_among(path: str, names: Iterable[str]) -> bool:
    """Whether one of some names is that of a file, wherever it is looked for from."""
    return any(path == name or Path(path).name == Path(name).name for name in names)


def script_references(document: Document, parsed: Parsed) -> Iterator[Place]:
    """The files that a script names, beside those under the keys of a configuration."""
    for key, file, span in parsed.references:
        if key not in _REFERENCES and is_file_name(file):
            yield Place(document, key, Node(span, value=file))


def references(document: Document) -> Iterator[Place]:
    """The places of a document that name another file of the run."""
    for key in _REFERENCES:
        place = document.get(key)
        if place is not None and isinstance(place.value, str) and is_file_name(place.value):
            yield place
