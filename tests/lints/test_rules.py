"""Every rule: its page's examples are run, it is complete, and one that raises ends nothing."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from docs.new_rule import unwritten
from tests.lints.lint_asking import Answer, lint
from tests.lints.lint_pages import Example, examples

import tunec
from tunec.compiler.lints import lint as linting
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.environment import split_requirement
from tunec.compiler.lints.index import (
    FOLDERS,
    rule,
    rule_names,
    rule_page,
    rules_for,
    rules_of_kinds,
)
from tunec.compiler.lints.rule import CONSEQUENCES, Rule, check_rule
from tunec.compiler.resolve import devices_of
from tunec.schemas.frozen import replace
from tunec.schemas.hardware.catalogue import cluster

RULES = rule_names()
PACKAGE = Path(tunec.__path__[0])


@pytest.fixture
def linted(monkeypatch: pytest.MonkeyPatch) -> list[LintContext]:
    """Every run that is linted, as it is linted."""
    runs: list[LintContext] = []
    check = linting.check
    monkeypatch.setattr(linting, "check", lambda run: runs.append(run) or check(run))
    return runs


def test_there_are_rules() -> None:
    assert len(RULES) > 2


@pytest.mark.parametrize("name", RULES)
def test_a_page_is_true(name: str, linted: list[LintContext], tmp_path: Path) -> None:
    _is_written(name)
    found = rule(name)
    _says_what_it_is(found, name)
    _has_a_heading_and_both_examples(name)
    _names_its_sources(name)
    for number, example in enumerate(examples(name)):
        folder = tmp_path / str(number)
        answer = lint(folder, example.files, example.arguments)
        if example.is_bad:
            _yields_exactly_the_rule(found, example, answer)
            _is_mended_by_a_safe_fix(name, example, answer, folder)
        else:
            _yields_none_of_it(name, example, answer)
    assert linted
    _is_asked_wherever_it_finds_something(linted)
    if not found.hardware:
        _finds_the_same_on_all_hardware(found, linted)


def _is_written(name: str) -> None:
    """Nothing that `just new-rule` left to its author is left in the page or the module."""
    files = (f"/{name}.md:", f"/{name.replace('-', '_')}.py:")
    missing = [f"{at}: {what}" for at, what in unwritten() if any(each in at for each in files)]
    assert not missing, "still to be written:\n" + "\n".join(missing)


def _says_what_it_is(found: Rule, name: str) -> None:
    assert found.name == name
    assert found.consequence in CONSEQUENCES
    assert found.consumers
    for requirement in found.consumers:
        package, specifiers = split_requirement(requirement)
        assert re.fullmatch(r"[a-z][a-z0-9_-]*", package)
        bounds = [each.strip() for each in str(specifiers).split(",") if each]
        assert all(re.fullmatch(r"(>=|<=|==|!=|<)\d+(\.\d+)*(\.\*)?", each) for each in bounds)


def _has_a_heading_and_both_examples(name: str) -> None:
    assert re.match(rf"# {name}: [^A-Z\n]?[^\n]+[^.\n]\n\n\S", rule_page(name))
    assert {example.is_bad for example in examples(name)} == {True, False}


def _names_its_sources(name: str) -> None:
    sources = rule_page(name).partition("\n## Sources\n\n- ")[2].split("\n- ")
    assert all(re.search(r"\d|#|/", source) for source in sources), "a source names a place"


def _yields_exactly_the_rule(found: Rule, example: Example, answer: Answer) -> None:
    assert set(answer.names) == {found.name}, f"{example.title}: {answer.names}\n{answer.err}"
    for each in answer.findings:
        assert each["labels"], "a finding has a place"
        assert each["severity"] in (found.severity, "warning", "note")
        assert not each["message"].endswith(".")
    severities = {each["severity"] for each in answer.findings}
    assert answer.code == (1 if "error" in severities else 0)


def _yields_none_of_it(name: str, example: Example, answer: Answer) -> None:
    assert name not in answer.names, example.title
    errors = [each["id"] for each in answer.findings if each["severity"] == "error"]
    assert errors == [], f"{example.title}: {errors}"


def _is_mended_by_a_safe_fix(name: str, example: Example, before: Answer, folder: Path) -> None:
    """Whatever is offered as safe is applied, and then the rule finds nothing there any more."""
    fixes = [each["fix"] for each in before.findings if each["fix"]]
    if not fixes or any(fix["applicability"] != "safe" for fix in fixes):
        return
    after = lint(folder, {}, (*example.arguments, "--fix"))
    assert after.names.count(name) == before.names.count(name) - len(fixes)
    assert not any(each["id"].startswith("E01") for each in after.findings), "it still parses"


def _is_asked_wherever_it_finds_something(runs: list[LintContext]) -> None:
    """What a rule reads is declared: a rule that is not asked would find nothing."""
    for run in runs:
        asked = rules_for(run.kinds, run.keys)
        others = (each for each in rules_of_kinds(run.kinds) if each not in asked)
        assert [told.id for each in others for told in check_rule(each, run)] == []


def _finds_the_same_on_all_hardware(found: Rule, runs: list[LintContext]) -> None:
    for run in runs:
        told = [list(check_rule(found, each)) for each in _elsewhere(run)]
        assert told[0] == told[1], "a rule that asks for hardware says so"


def _elsewhere(run: LintContext) -> Iterator[LintContext]:
    """The run as one of eight processes, on each of two clusters of the catalogue."""
    for name in ("t4-x1", "h100-sxm-x8"):
        found = cluster(name)
        yield run.moved(replace(run.environment, cluster=found, devices=devices_of(found), world=8))


def test_no_two_rules_share_a_name() -> None:
    """Of two pages of one name, or two rules of one name in a folder, only one would be asked."""
    pages = [page.stem for folder in FOLDERS for page in PACKAGE.glob(f"{folder}/*.md")]
    assert len(pages) == len(set(pages)) == len(RULES)
    for folder in {page.parent for pattern in FOLDERS for page in PACKAGE.glob(f"{pattern}/*.md")}:
        within = ".".join(("tunec", *folder.relative_to(PACKAGE).parts))
        modules = [import_module(f"{within}.{each.stem}") for each in folder.glob("[!_]*.py")]
        rules = {id(each): each for one in modules for each in vars(one).values()}
        names = [each.name for each in rules.values() if isinstance(each, Rule)]
        assert sorted(names) == sorted(page.stem for page in folder.glob("*.md"))


FAILING = """
from tunec.__main__ import main
from tunec.compiler.lints import index
from tunec.compiler.lints.rule import rule

@rule("error", "parse", consumers=())
def few_numbers(run):
    yield from ()
    raise ZeroDivisionError("no number")

known = index.rules_for
index.rules_for = lambda kinds, keys: (few_numbers, *known(kinds, keys))
from tunec.compiler.lints import lint
lint.rules_for = index.rules_for
import sys
sys.exit(main())
"""


def test_the_rest_is_checked_and_the_exit_code_is_that_of_a_bug(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 7}}', "utf-8")
    command = [sys.executable, "-c", FAILING, "lint", "ds.json", "--format", "json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 70, done.stderr
    found = json.loads(done.stdout)
    (failed,) = (each for each in found if each["id"] == "few-numbers")
    assert failed["message"] == "tunec failed to check this: ZeroDivisionError: no number"
    assert failed["severity"] == "warning"
    assert any("stage" in each["message"] for each in found)
    assert "Traceback" not in done.stderr
