"""Looks up what is known of a public data set: `public.yaml` holds a row for each.

A plan fetches nothing, so this is all that it can know of a name on the Hub. The data set may have
changed since its row was written; every row names its source.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from tunec.schemas.caches import cached
from tunec.schemas.data_paths import chosen, data_kind, first_of
from tunec.schemas.entries import read_yaml

Content = Literal[
    "text",
    "texts",
    "chat",
    "sharegpt",
    "turns",
    "image",
    "images",
    "audio",
    "number",
    "bool",
    "other",
]
"""What a column holds: a text, messages with `role` and `content`, turns with `from` and `value`
of anybody, or of a human and a gpt in `sharegpt`, and so on."""

Splits = Mapping[str, int | None]
"""The samples of each split; None where no source states their number."""


class PublicDataset(Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of one data set on the Hub."""

    source: str
    columns: Mapping[str, Content] = {}
    """The columns of a record; empty where they are not known, or differ between parts."""
    splits: Splits = {}
    """The splits that are there without a configuration."""
    configs: Mapping[str, Splits] = {}
    """The splits of each configuration, where one has to be chosen."""

    def splits_of(self, config: str | None) -> Splits:
        """The splits of a configuration, or of the only one; empty where they are not known."""
        return self.splits if config is None else self.configs.get(config, {})


_FILE: Final = Path(__file__).parent / "public.yaml"


@cached(1)
def _rows() -> Mapping[str, tuple[str, Any]]:
    """Each name with its row, by the name in lower case: the Hub ignores case."""
    return {name.lower(): (name, row) for name, row in read_yaml(_FILE).items()}


def dataset_names() -> tuple[str, ...]:
    """The names of all known data sets."""
    return tuple(name for name, _ in _rows().values())


def dataset(name: str) -> PublicDataset:
    """What is known of a data set, by its name on the Hub. Raises LookupError."""
    _, row = _rows()[name.lower()]
    return msgspec.convert(row, PublicDataset)


@cached(64)
def public_dataset(path: str) -> PublicDataset | None:
    """What is known of the data set that a path names; None for files and for unknown names."""
    name = chosen(path).path
    is_known = data_kind(path) == "name" and name.lower() in _rows()
    return dataset(name) if is_known else None


def samples_in(path: str) -> int | None:
    """The samples of the part that a path names; of `train` where it names no split.

    None where they are not known, as in a slice by percent.
    """
    known, part = public_dataset(path), chosen(path)
    split, most = first_of(part.split)
    count = known and known.splits_of(part.config).get(split or "train")
    return min(count, most or count) if count else None
