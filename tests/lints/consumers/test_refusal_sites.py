"""Every place where the programs' validators refuse is listed, and lint finds those of a file."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from docs.refusal_shares import HIDDEN, Validators, validators
from packaging.version import Version

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER.parent), str(FOLDER)]

from raise_sites import Site, sites_of  # noqa: E402

from tunec.compiler.consumers.environments import prepare  # noqa: E402
from tunec.compiler.consumers.queries import ask  # noqa: E402
from tunec.compiler.consumers.sets import SETS, choose  # noqa: E402
from tunec.targets.registry import TARGETS  # noqa: E402
from tunec.targets.scripts.sources import Source, obtain  # noqa: E402

LEAST = 0.95
TABLES = validators()
PACKAGED = tuple(each for each in TABLES if each.repository is None)
OF_REPOSITORIES = tuple(each for each in TABLES if each.repository is not None)


def name(table: Validators) -> str:
    return table.program


@pytest.mark.parametrize("table", PACKAGED, ids=name)
def test_the_places_that_refuse_are_those_of_the_program(table: Validators) -> None:
    environment = prepare(choose(table.program, table.version).requirements)
    question = {"verb": "find", "package": table.package, "modules": list(table.modules)}
    (answer,) = ask(environment, "lints.consumers.raise_sites", [question], root=FOLDER.parent)
    _are_listed(table, answer)


@pytest.mark.nightly
@pytest.mark.real
@pytest.mark.parametrize("table", OF_REPOSITORIES, ids=name)
def test_the_places_that_refuse_are_those_of_the_repository(table: Validators) -> None:
    held = table.repository
    assert held is not None
    sources = {
        module: Source(held.name, held.commit, f"{held.folder}{module}", blob)
        for module, blob in held.blobs.items()
    }
    texts = {module: obtain(each).read_text("utf-8") for module, each in sources.items()}
    _are_listed(table, {module: sites_of(text) for module, text in texts.items()})


def _are_listed(table: Validators, answer: Mapping[str, Sequence[Site]]) -> None:
    """In the order of its source, each with words that stand there."""
    there = [(module, each) for module, held in answer.items() for each in held]
    listed = [(site.module, site.function) for site in table.sites]
    assert listed == [(module, each["in"]) for module, each in there]
    lost = [
        (site, each["text"])
        for site, (_, each) in zip(table.sites, there, strict=True)
        if site.says not in each["text"]
    ]
    assert lost == []


@pytest.mark.parametrize("table", TABLES, ids=name)
def test_a_table_is_of_the_newest_release_that_is_known(table: Validators) -> None:
    if table.repository is not None:
        assert table.version == TARGETS.readable()[table.program].latest
        return
    known = [each.version for each in SETS.values() if each.consumer == table.program]
    assert table.version == max(known, key=Version)


@pytest.mark.parametrize("table", TABLES, ids=name)
def test_lint_finds_what_a_file_can_show(table: Validators) -> None:
    assert len(table.found) >= LEAST * len(table.shown), table.missed


@pytest.mark.parametrize("table", TABLES, ids=name)
def test_what_no_file_shows_has_a_known_reason(table: Validators) -> None:
    hidden = [site for site in table.sites if site.hidden]
    assert {site.hidden for site in hidden} <= set(HIDDEN)
    assert len(hidden) < len(table.sites)
