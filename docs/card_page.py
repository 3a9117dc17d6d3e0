"""The page of families for which a card can be derived, from the rows of `card_sweep.py`."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from docs.readme import ROOT

from tunec.compiler.analyses.architecture.families import FAMILIES
from tunec.schemas.models.refusals import UNPLANNED

_CARDS: Final = ROOT / "schemas" / "models" / "derived"
_ROWS: Final = ROOT / "benchmarks" / "card_sweep.jsonl"
_INTRODUCTION: Final = """\
A model of a family that no rule of tunec derives is planned by a card, which `tunec card` reads off
the class that transformers builds of its config. Here it was tried with the default config of
configuration classes that have a head for causal, vision-language, sequence-to-sequence, speech or
masked language modelling: the class is built without weights, and its passes are run and measured.
`just card-sweep` tries anew. Defaults are often placeholders that do not fit together, which a real
`config.json` fills: `benchmarks/card_sweep_filled.yaml` has what such files say, with whose they
are. What cannot be built from others says nothing of real models of the family. Classes with a
vision tower of timm are asked where timm 1.0.31 is installed; without it, their card's refusal
names it."""
_KINDS: Final[Mapping[str, str]] = {
    "the default config cannot be made": "its own defaults are refused",
    "transformers refuses the config": "its own defaults are refused",
    "cannot be built": "the class cannot be built from its defaults",
    "does not run": "a pass of the class does not run",
    "follow no curve": "its memory follows no curve of the length",
    "follows no curve": "its memory follows no curve of the length",
    "encoder reads no tokens": "its encoder reads sound or pictures",
    "without the encoder": "its encoder reads sound or pictures",
    "more than their states": "its layers hand on more than their states",
    "takes longer": "it takes longer than the sweep gives",
    "takes more memory": "it takes more memory than the sweep gives",
    "process ended": "its process ended",
    "own fault": "a fault of tunec",
}
"""Words of a reason, and the kind of reasons with these words."""
_OTHER: Final = "the class is of a form that is not read"
Row = Mapping[str, Any]


def card_page() -> str:
    """The page: shares by head, reasons by frequency, and every family."""
    rows = [json.loads(line) for line in _ROWS.read_text("utf-8").splitlines()]
    return "\n".join(_lines(rows)) + "\n"


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    releases = " and ".join(sorted({row["release"] for row in rows}))
    yield "<!-- made by docs/card_page.py; `just generate` renews it -->"
    yield from ("", "# Families that a card can be derived of", "", _INTRODUCTION, "")
    made = sum(map(_is_derived, rows))
    share = f"{made} of {len(rows)} families asked give a card: {made / len(rows):.0%}"
    yield f"With {releases}, {share}."
    yield (
        "Others can be planned by a rule that derives them, or by a card of their real models. The "
        "last two columns count these too."
    )
    yield ""
    yield "| head | families | cards | share | can be planned | share |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for head in dict.fromkeys(row["head"] for row in rows):
        yield _shares(head, [row for row in rows if row["head"] == head])
    yield _shares("all but speech", [row for row in rows if row["head"] != "speech"])
    yield _shares("all", rows)
    yield from ("", "## Why there is none", "", "| reason | families |", "| --- | ---: |")
    reasons = Counter(_kind(row["refused"]) for row in rows if not _is_derived(row))
    for reason, count in sorted(reasons.items(), key=lambda each: (-each[1], each[0])):
        yield f"| {reason} | {count} |"
    yield from ("", "## Models by name that are refused", "", "| name | reason |", "| --- | --- |")
    for start, why in UNPLANNED.items():
        yield f"| `{start}*` | {why} |"
    yield from ("", "## Every family", "", "| family | head | card |", "| --- | --- | --- |")
    for row in rows:
        yield f"| `{row['family']}` | {row['head']} | {_cell(row)} |"


def _shares(name: str, rows: Sequence[Row]) -> str:
    """A line of the table of heads: how many families give a card, and how many can be planned."""
    derived = sum(map(_is_derived, rows))
    planned = sum(_is_derived(row) or row["family"] in _otherwise() for row in rows)
    counts = (f"{each} | {each / len(rows):.0%}" for each in (derived, planned))
    return f"| {name} | {len(rows)} | {' | '.join(counts)} |"


def _otherwise() -> frozenset[str]:
    """Families for which tunec has a rule or a card."""
    return frozenset(FAMILIES) | {each.stem.rpartition("-")[0] for each in _CARDS.glob("*.json")}


def _is_derived(row: Row) -> bool:
    return "parameters" in row


def _kind(reason: str) -> str:
    return next((kind for words, kind in _KINDS.items() if words in reason), _OTHER)


def _cell(row: Row) -> str:
    if _is_derived(row):
        return f"{row['parameters'] / 1e6:,.1f} million parameters"
    if row["family"] in _otherwise():
        return "planned by a rule, or by a card of its real models"
    told = " ".join(row["refused"].split()).replace("|", "\\|").replace("<", "&lt;")
    return told if len(told) <= _MOST else told[:_MOST] + "…"


_MOST: Final = 200
"""The most characters of a reason that the page shows."""
