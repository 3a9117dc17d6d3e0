"""The page of diffusers' classes for which a card can be derived, from `denoiser_sweep.py`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from docs.readme import ROOT

_ROWS: Final = ROOT / "benchmarks" / "denoiser_sweep.jsonl"
_INTRODUCTION: Final = """\
A model that paints, films or makes sound is planned by a card where no rule of tunec derives its
class: `tunec card` reads it off the class that diffusers builds of `transformer/config.json`. Here
it was tried with transformers and UNets that diffusers exports, of the class's default config;
where the defaults cannot be built, with the few keys that diffusers' own converters and tests say.
One of the twelve ways of computing is measured here, a card measures all of them. `just
denoiser-sweep` tries anew."""
_MOST: Final = 200
"""The most characters of a reason that the page shows."""
Row = Mapping[str, Any]


def denoiser_page() -> str:
    """The page: the share of derived classes, and each class with its parameters or the reason."""
    rows = [json.loads(line) for line in _ROWS.read_text("utf-8").splitlines()]
    return "\n".join(_lines(rows)) + "\n"


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    releases = " and ".join(sorted({row["release"] for row in rows}))
    yield "<!-- made by docs/denoiser_page.py; `just generate` renews it -->"
    yield from ("", "# Denoisers that a card can be derived of", "", _INTRODUCTION, "")
    made = sum("refused" not in row for row in rows)
    share = f"{made / len(rows):.0%}"
    yield f"With {releases}, {made} of {len(rows)} classes asked can be planned: {share}."
    yield from ("", "| class | card |", "| --- | --- |")
    yield from (f"| `{row['family']}` | {_cell(row)} |" for row in rows)


def _cell(row: Row) -> str:
    if "by" in row:
        return f"planned by {row['by']}"
    if "parameters" in row:
        return f"{row['parameters'] / 1e6:,.1f} million parameters"
    told = " ".join(row["refused"].split()).replace("|", "\\|").replace("<", "&lt;")
    return told if len(told) <= _MOST else told[:_MOST] + "…"
