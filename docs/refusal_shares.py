"""What lint finds of the programs' own refusals, from the tables of every place that refuses.

`tests/lints/data/refusal_sites/` has a table for each program: every place in the source of its
validators that refuses, in order, with words of it. `hidden` says why no file shows it; where it
is left out a file can, and the place is found where a case of `tests/lints/data/refusals/` or a
proof of a rule's page, at the same release, has the same words: its file is refused by the program
with them, and lint finds it. `also`: what else cases call the program, as where tests make its
trainers.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import yaml
from docs.readme import ROOT

_DATA: Final = ROOT / "tests" / "lints" / "data"
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

HIDDEN: Final[Mapping[str, str]] = {
    "device": "it follows from the devices of the machine",
    "packages": "it follows from what is installed",
    "model": "it follows from the model that is loaded",
    "data": "it follows from the data",
    "disk": "it follows from the files that lie there",
    "launch": "it follows from how the program is started, and from flags that complete a file",
    "code": "it is about objects that only a program in Python gives",
    "syntax": "the file cannot be read at all, which lint reports by a code and no rule",
    "command": "it belongs to another command than training",
    "unreached": "no file reaches it: another check comes first, or nothing calls it",
}
"""Reasons why no file can show a place."""


@dataclass(frozen=True, slots=True)
class Site:
    """A place that refuses: its module, its function, its words, and why no file can show it."""

    module: str
    function: str
    says: str
    hidden: str
    told: str
    """The words of the refusal, if they differ from those of the place, as for a bare `assert`."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository at a commit, the folder of the modules, and the path of each module in git."""

    name: str
    commit: str
    folder: str
    blobs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Validators:
    """The places of one program at one release that refuse, and which of them lint finds."""

    program: str
    version: str
    package: str
    modules: tuple[str, ...]
    repository: "Repository | None"
    """The repository of its source, if its program is on no package index."""
    sites: tuple[Site, ...]
    found: tuple[Site, ...]
    asked: tuple[Site, ...]
    """The places of `found` for which tests run the program itself."""

    @property
    def shown(self) -> tuple[Site, ...]:
        """The places that a file can show."""
        return tuple(each for each in self.sites if not each.hidden)

    @property
    def missed(self) -> tuple[Site, ...]:
        """The places that a file can show and lint does not find."""
        return tuple(each for each in self.shown if each not in self.found)


@cache
def validators() -> tuple[Validators, ...]:
    """The table of each program."""
    files = sorted((_DATA / "refusal_sites").glob("*.yaml"))
    return tuple(_validators(_read(f"refusal_sites/{path.name}")) for path in files)


def _validators(table: Mapping[str, Any]) -> Validators:
    sites = tuple(
        Site(module, row["in"], row["says"], row.get("hidden", ""), row.get("told", row["says"]))
        for module, rows in table["sites"].items()
        for row in rows
    )
    program, version = table["program"], table["version"]
    left, asked = _cases((program, *table.get("also", ())), version)
    found = list[Site]()
    heard = list[Site]()
    for site in sites:
        if not site.hidden and left[site.told]:
            left[site.told] -= 1
            found.append(site)
            if asked[site.told]:
                asked[site.told] -= 1
                heard.append(site)
    return Validators(
        program,
        version,
        table.get("package", ""),
        tuple(table.get("modules", ())),
        Repository(**table["repository"]) if "repository" in table else None,
        sites,
        tuple(found),
        tuple(heard),
    )


@cache
def _tables() -> tuple[Any, ...]:
    files = sorted((_DATA / "refusals").glob("*.yaml"))
    return (*(_read(f"refusals/{path.name}") for path in files), *_read("proofs.yaml"))


@cache
def _cases(programs: tuple[str, ...], version: str) -> tuple[Counter[str], Counter[str]]:
    """The words of refusals, each as often as there is a file, and as the program is asked."""
    mine = [each for each in _tables() if each["program"] in programs]
    mine = [each for each in mine if each["version"] == version]
    rows = [row for each in mine for kind in ("cases", "refused") for row in each.get(kind, ())]
    told = [row for row in rows if row.get("says")]
    asked = [row for row in told if "unasked" not in row]
    return Counter(str(row["says"]) for row in told), Counter(str(row["says"]) for row in asked)


def _read(name: str) -> Any:
    return yaml.load((_DATA / name).read_text("utf-8"), _LOADER)  # noqa: S506  safe, both


def refusal_shares() -> Sequence[tuple[str, ...]]:
    """For each program: places that refuse, those a file shows, found, run, and the share."""
    return [
        (
            f"{each.program} {each.version}",
            str(len(each.sites)),
            str(len(each.shown)),
            str(len(each.found)),
            str(len(each.asked)),
            f"{len(each.found) / len(each.shown):.0%}",
        )
        for each in validators()
    ]
