"""Every rule: its page's examples are run, and what it says of itself is complete."""

import re
from pathlib import Path

import pytest
from lint_asking import lint
from lint_pages import examples

from tunec.compiler.lints.index import rule, rule_names, rule_page
from tunec.compiler.lints.rule import CONSEQUENCES
from tunec.compiler.lints.run import split_requirement

RULES = rule_names()
ENGINE = {"unused-allowance"}


def test_there_are_rules() -> None:
    assert len(RULES) > 2


@pytest.mark.parametrize("name", RULES)
def test_a_rule_says_what_it_is(name: str) -> None:
    found = rule(name)
    assert found.name == name
    assert found.consequence in CONSEQUENCES
    assert found.consumers
    assert found.sources
    assert all(re.search(r"\d|#|/", source) for source in found.sources), "a source names a place"
    for requirement in found.consumers:
        package, specifiers = split_requirement(requirement)
        assert re.fullmatch(r"[a-z][a-z0-9_-]*", package)
        bounds = [each.strip() for each in str(specifiers).split(",") if each]
        assert all(re.fullmatch(r"(>=|<=|==|!=|<)\d+(\.\d+)*(\.\*)?", each) for each in bounds)


@pytest.mark.parametrize("name", RULES)
def test_a_page_has_a_heading_and_both_examples(name: str) -> None:
    page = rule_page(name)
    assert re.match(rf"# {name}: [^A-Z\n]?[^\n]+[^.\n]\n\n\S", page)
    kinds = [example.is_bad for example in examples(name)]
    assert True in kinds
    assert False in kinds


@pytest.mark.parametrize("name", RULES)
def test_the_bad_examples_yield_exactly_the_rule(name: str, tmp_path: Path) -> None:
    for number, example in enumerate(each for each in examples(name) if each.is_bad):
        folder = tmp_path / str(number)
        answer = lint(folder, example.files, example.arguments)
        assert set(answer.names) == {name}, f"{example.title}: {answer.names}\n{answer.err}"
        found = rule(name)
        for each in answer.findings:
            assert each["labels"], "a finding has a place"
            assert each["severity"] in (found.severity, "warning", "note")
            assert not each["message"].endswith(".")
        severities = {each["severity"] for each in answer.findings}
        assert answer.code == (1 if "error" in severities else 0)


@pytest.mark.parametrize("name", RULES)
def test_the_good_examples_yield_none_of_it(name: str, tmp_path: Path) -> None:
    for number, example in enumerate(each for each in examples(name) if not each.is_bad):
        answer = lint(tmp_path / str(number), example.files, example.arguments)
        assert name not in answer.names, example.title
        errors = [each["id"] for each in answer.findings if each["severity"] == "error"]
        assert errors == [], f"{example.title}: {errors}"


@pytest.mark.parametrize("name", RULES)
def test_a_safe_fix_mends_the_bad_example(name: str, tmp_path: Path) -> None:
    """Whatever is offered as safe is applied, and then the rule finds nothing there any more."""
    for number, example in enumerate(each for each in examples(name) if each.is_bad):
        folder = tmp_path / str(number)
        before = lint(folder, example.files, example.arguments)
        fixes = [each["fix"] for each in before.findings if each["fix"]]
        if not fixes or any(fix["applicability"] != "safe" for fix in fixes):
            continue
        after = lint(folder, {}, (*example.arguments, "--fix"))
        assert after.names.count(name) == before.names.count(name) - len(fixes)
        assert not any(each["id"].startswith("E01") for each in after.findings), "it still parses"
