"""What a fleet file selects, names in it that lead nowhere, and the pages about fleets."""

import re
from pathlib import Path

import pytest
import yaml
from tests.fleet.fleets import FLEET, write_fleet

from tunec.compiler.fleet.inputs import Reader
from tunec.compiler.fleet.selection import select
from tunec.compiler.frontend.document import load_document
from tunec.compiler.review.policy import load_policy
from tunec.schemas.fleet import Fleet


def names(found):
    assert found.selection is not None, found.diagnostics
    return list(found.selection.specs), [site.name for site in found.selection.sites]


def test_all_that_is_named(fleet):
    specs, sites = names(select(fleet))
    assert specs == ["large", "q", "small"]
    assert sites == ["a100-pcie-40g-x8", "a100-sxm4-80g-x8", "g5.12xlarge", "t4-x1"] or set(
        sites
    ) == {"a100-40g-x8", "a100-80g-x8", "g5.12xlarge", "t4-x1"}


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        ("specs/*.yaml", ["large", "q", "small"]),
        ("[specs/q.yaml, specs/small.yaml]", ["q", "small"]),
        ("{include: 'specs/*', exclude: specs/q*}", ["large", "small"]),
        ("'**/l*.yaml'", ["large"]),
    ],
)
def test_specs(tmp_path, specs, expected):
    file = write_fleet(tmp_path, FLEET.replace("specs: specs/*.yaml", f"specs: {specs}"))
    assert names(select(file))[0] == expected


G7E_FROM_48 = ("g7e.48xlarge", "g7e.4xlarge", "g7e.8xlarge")
G2_FROM_12 = [f"g2-standard-{cores}" for cores in (12, 16, 24, 32, 48, 96)]


@pytest.mark.parametrize(
    ("clusters", "expected"),
    [
        ("p4d.24xlarge", ["p4d.24xlarge"]),
        ("[g7e.*]", ["g7e.12xlarge", "g7e.24xlarge", "g7e.2xlarge", *G7E_FROM_48]),
        ("{include: p5*, exclude: '*.48xlarge'}", ["p5.4xlarge"]),
        ("{include: '*', labels: {cloud: gcp}, exclude: [a*, g2-standard-?]}", G2_FROM_12),
        ("t4-x*", ["t4-x1", "t4-x2", "t4-x4", "t4-x8"]),
    ],
)
def test_clusters(tmp_path, clusters, expected):
    named = "clusters: [a100-80g-x8, a100-40g-x8, g5.12xlarge, t4-x1]"
    file = write_fleet(tmp_path, FLEET.replace(named, f"clusters: {clusters}"))
    assert names(select(file))[1] == expected


def test_cluster_file(tmp_path):
    own = "name: own\nlabels: {team: vision}\nnodes:\n"
    node = (
        "  - accelerators: [{device: a100-80g, count: 2}]\n    host: {memory: 256GiB, cores: 32}\n"
    )
    (tmp_path / "own.yaml").write_text(own + node, "utf-8")
    named = "clusters: [a100-80g-x8, a100-40g-x8, g5.12xlarge, t4-x1]"
    text = FLEET.replace(named, "clusters: {include: '*.yaml', labels: {team: vis*}}")
    (site,) = select(write_fleet(tmp_path, text)).selection.sites
    assert (site.name, site.is_catalogued) == ("own", False)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("specs/*.yaml", "spec/*.yaml", "no spec file matches `spec/*.yaml`"),
        ("specs/*.yaml", "specs/a**b.yaml", "is no pattern of files"),
        ("specs/*.yaml", "/specs/*.yaml", "is no pattern of files"),
        ("t4-x1", "t44-x1", "no cluster matches `t44-x1`"),
        ("t4-x1", "'**own.yaml'", "is no pattern of clusters"),
        ("t4-x1", "zz-*", "no cluster matches `zz-*`"),
        ("fleet: 1", "fleet: 2", "fleet"),
        ("clusters: [g5.*]", "cluster: [g5.*]", "cluster"),
        ("targets:", "target:", "target"),
    ],
)
def test_what_leads_nowhere(tmp_path, old, new, said):
    found = select(write_fleet(tmp_path, FLEET.replace(old, new, 1)))
    assert found.selection is None
    assert any(said in each.message for each in found.diagnostics), found.diagnostics
    assert all(label.span for each in found.diagnostics for label in each.labels)


def test_what_is_said_of_a_cluster_is_said_of_its_entry(tmp_path):
    selection = select(write_fleet(tmp_path)).selection
    site = next(each for each in selection.sites if each.name == "t4-x1")
    loaded = Reader(selection).loaded("small", site)
    place = loaded.spans["hardware",]
    assert Path(place.file).name == "fleet.yaml"
    line = loaded.sources[place.file].splitlines()[place.line - 1]
    assert line[place.column - 1 :].startswith("t4-x1")


def test_two_specs_of_one_name(tmp_path):
    file = write_fleet(tmp_path)
    spec = (tmp_path / "specs" / "q.yaml").read_text("utf-8")
    (tmp_path / "specs" / "other.yaml").write_text("name: small\n" + spec, "utf-8")
    (fault,) = select(file).diagnostics
    assert fault.id == "E0314"
    assert "two specs are called `small`" in fault.message


def test_overrides_are_laid_over_in_order(tmp_path):
    text = FLEET + (
        "  - specs: [large]\n    set: {batch: {global: 256}, pin: {zero.stage: 2}}\n"
        "  - labels: {cloud: aws}\n    set: {data: {train: other.jsonl}}\n"
    )
    selection = select(write_fleet(tmp_path, text)).selection
    by_name = {site.name: site for site in selection.sites}
    aws = by_name["g5.12xlarge"]
    assert selection.overrides("large", aws) == (
        "batch.global=128",
        "batch.global=256",
        "pin.zero.stage=2",
        "data.train=other.jsonl",
    )
    assert selection.overrides("small", by_name["t4-x1"]) == ()


def test_a_target_that_there_is_not_is_told_at_its_place(tmp_path):
    file = write_fleet(tmp_path, FLEET.replace("[deepspeed, hugg", "[deepspeeed, hugg"))
    (unknown,) = select(file, ("deepspeed", "huggingface")).diagnostics
    assert (unknown.id, unknown.file, unknown.span.line) == ("E0309", str(file), 4)
    assert unknown.help == "did you mean `deepspeed`?"


@pytest.mark.parametrize("which", ["fleet.yaml", "rules.yaml"])
def test_a_file_that_cannot_be_read_is_named_as_its_place(which, tunec, tmp_path):
    if which == "rules.yaml":
        write_fleet(tmp_path, f"{FLEET}policies: [rules.yaml]\n")
    result = tunec("fleet", tmp_path / "fleet.yaml", "-o", tmp_path / "build")
    assert result.code == 1
    assert "error[E0201]: cannot read" in result.err
    assert f"--> {tmp_path / which}:1:1" in result.err


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
