"""What the pages about fleets and policies show is taken by what reads it."""

import re
from pathlib import Path

import pytest
import yaml

from tunec.compiler.frontend.document import load_document
from tunec.compiler.review.policy import load_policy
from tunec.schemas.fleet import Fleet

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, first: str) -> list[str]:
    found = BLOCK.findall((DOCS / page).read_text("utf-8"))
    return [text for text in found if re.search(f"^{first}:", text, re.MULTILINE)]


def test_fleet(tmp_path):
    (text,) = blocks("fleet.md", "fleet")
    (tmp_path / "fleet.yaml").write_text(text, "utf-8")
    document = load_document(tmp_path / "fleet.yaml", Fleet)
    assert document.diagnostics == ()
    assert document.value.clusters.labels == {"cloud": "aws"}


def test_policy(tmp_path):
    (text,) = blocks("review.md", "policy")
    (tmp_path / "policy.yaml").write_text(text, "utf-8")
    assert load_policy(tmp_path / "policy.yaml").faults == ()


@pytest.mark.parametrize("page", ["review.md", "lint-in-ci.md"])
def test_workflows_are_yaml_whose_commands_exist(page):
    from tunec.compiler.cli.arguments import build_parser

    text = (DOCS / page).read_text("utf-8")
    known = build_parser("0").format_help()
    for workflow in blocks(page, "jobs"):
        assert yaml.safe_load(workflow)["jobs"]
    commands = set(re.findall(r"^\s*(?:- )?(?:run: )?tunec ([a-z]+)", text, re.MULTILINE))
    assert commands
    assert all(f"    {command}" in known for command in commands), commands
