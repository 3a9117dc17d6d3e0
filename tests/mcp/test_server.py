"""The server answers a real client over stdin and stdout, and SKILL.md's commands work."""

import json
import os
import re
import shlex
import sys
from pathlib import Path

import anyio
import pytest
import yaml
from mcp import Client, StdioServerParameters
from tests.cli.shell import Shell
from tests.review.test_diff_of_files import DEEPSPEED, TRAIN, git
from tests.small_spec import SPEC

LORA = Path(__file__).parents[2] / "examples/glm-4v-9b-lora/original/lora.yaml"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    found = tmp_path_factory.mktemp("mcp") / "project"
    found.mkdir()
    (found / "spec.yaml").write_text(SPEC, "utf-8")
    (found / "wide.yaml").write_text(SPEC.replace("global: 64", "global: 128"), "utf-8")
    (found / "lora.yaml").write_text(LORA.read_text("utf-8"), "utf-8")
    (found / "ds.json").write_text('{"zero_optimization": {"stage": 7}}\n', "utf-8")
    (found.parent / "outside.yaml").write_text(SPEC, "utf-8")
    return found


CALLS = {
    "plan": ("plan", {"spec": "spec.yaml", "hardware": "a100-40g-x8"}),
    "why": ("explain", {"what": "spec.yaml", "slot": "parallel.engine"}),
    "page": ("explain", {"what": "E0701"}),
    "lint": ("lint", {"paths": ["ds.json"]}),
    "choose": ("choose", {"spec": "spec.yaml", "hardware": ["a100-80g-x8"], "by": "time"}),
    "verify": ("verify", {"spec": "spec.yaml", "targets": ["kubeflow"]}),
    "diff": ("diff", {"old": "spec.yaml", "paths": ["wide.yaml"]}),
    "translate": ("translate", {"paths": ["lora.yaml"], "to": ["spec"], "model": "glm-4v-9b"}),
    "compile": ("compile", {"spec": "spec.yaml", "targets": ["deepspeed"], "directory": "out"}),
    "fits nowhere": ("plan", {"spec": "spec.yaml", "overrides": ["budget.gpu_memory=1GiB"]}),
    "outside": ("plan", {"spec": "../outside.yaml"}),
    "writes outside": (
        "compile",
        {"spec": "spec.yaml", "targets": ["deepspeed"], "directory": "../out"},
    ),
    "hardware outside": ("plan", {"spec": "spec.yaml", "hardware": "../outside.yaml"}),
    "a model outside": ("lint", {"paths": ["ds.json"], "model": "../outside.yaml"}),
    "an override outside": ("plan", {"spec": "spec.yaml", "overrides": ["model=../outside.yaml"]}),
    "clusters outside": ("choose", {"spec": "spec.yaml", "hardware": [".."]}),
    "a flag": ("lint", {"paths": ["--fix"]}),
    "no such target": ("plan", {"spec": "spec.yaml", "targets": ["nobody"]}),
}


@pytest.fixture(scope="module")
def session(folder):
    """The tools that one session lists, and the answer of each call."""

    async def asked():
        started = StdioServerParameters(
            command=sys.executable,
            args=["-m", "tunec", "mcp", "--directory", str(folder)],
            env=dict(os.environ),
        )
        async with Client(started) as client:
            tools = (await client.list_tools()).tools
            answers = {name: await client.call_tool(*call) for name, call in CALLS.items()}
        return {each.name: each for each in tools}, answers

    return anyio.run(asked)


def data(session, name: str):
    answer = session[1][name]
    assert not answer.is_error, answer
    return answer.structured_content


def test_every_tool_is_described_and_has_a_typed_result(session):
    tools = session[0]
    assert set(tools) == {tool for tool, _ in CALLS.values()}
    for each in tools.values():
        assert each.description
        assert "ok" in each.output_schema["properties"]
        assert each.annotations.read_only_hint or each.name in ("translate", "compile")
    described = [each.input_schema["properties"] for each in tools.values()]
    assert all("description" in json.dumps(each) for each in described)


def test_a_plan_and_why(session):
    found = data(session, "plan")
    assert found["ok"]
    assert found["plan"]["devices.model"] == "a100-sxm4-40g"
    assert found["memory"]["gpu"]["peak_bytes"] < found["memory"]["gpu"]["budget_bytes"]
    why = data(session, "why")
    assert why["value"] == "ddp"
    assert why["definitions"][0]["reason"]
    assert why["considered"]
    assert data(session, "page")["page"].startswith("# E0701")


def test_faults_are_results_with_places(session):
    found = data(session, "lint")["diagnostics"]
    fault = next(each for each in found if each["severity"] == "error")
    assert not data(session, "lint")["ok"]
    assert (fault["labels"][0]["file"], fault["labels"][0]["line"]) == ("ds.json", 1)
    tight = data(session, "fits nowhere")
    assert (tight["ok"], tight["plan"]) == (False, None)
    assert [each["id"] for each in tight["diagnostics"]] == ["E0701"]


def test_choosing_comparing_translating_and_verifying(session):
    assert data(session, "choose")["results"][0]["options"]
    assert data(session, "diff")["class"] == "breaking"
    assert data(session, "translate")["spec"].count("\nmodel:") == 1
    assert [each["id"] for each in data(session, "verify")["diagnostics"]] == ["E0905"]


def test_what_is_written_lies_below_the_directory(session, folder):
    assert data(session, "compile")["artifacts"][0]["target"] == "deepspeed"
    assert (folder / "out/deepspeed/ds_config.json").is_file()
    written = {each.relative_to(folder).parts[0] for each in folder.rglob("*")}
    assert written == {"spec.yaml", "wide.yaml", "lora.yaml", "ds.json", "out"}
    assert {each.name for each in folder.parent.iterdir()} == {"project", "outside.yaml"}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("outside", "../outside.yaml lies outside of"),
        ("writes outside", "../out lies outside of"),
        ("clusters outside", ".. lies outside of"),
        ("a flag", "'--fix' is no value here"),
        ("no such target", "nobody"),
    ],
)
def test_what_makes_no_sense_is_refused(session, name, says):
    answer = session[1][name]
    assert answer.is_error
    assert says in answer.content[0].text
    assert "Traceback" not in answer.content[0].text


@pytest.mark.parametrize("name", ["hardware outside", "a model outside", "an override outside"])
def test_what_a_call_names_is_read_below_the_directory_only(session, name):
    """The text of the file that is there appears nowhere."""
    told = session[1][name].model_dump_json()
    assert "lies outside the project" in told
    assert "samples" not in told


SKILL = (Path(__file__).parents[2] / "SKILL.md").read_text("utf-8")


def commands() -> list[list[str]]:
    blocks = re.findall(r"^```bash\n(.*?)^```", SKILL, re.MULTILINE | re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


def test_the_head_names_and_describes_it():
    head = yaml.safe_load(SKILL.split("---\n")[1])
    assert head["name"] == "tunec"
    assert 100 < len(head["description"]) < 1024


def test_commands_run(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.yaml").write_text(TRAIN, "utf-8")
    (tmp_path / "ds_config.json").write_text(DEEPSPEED, "utf-8")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    every = commands()
    assert len(every) > 8
    for command in every:
        assert command[0] == "tunec"
        done = Shell(capsys)(*command[1:])
        assert done.code == 0, (command, done)
    assert (tmp_path / "out/huggingface/training_args.yaml").is_file()
    assert (tmp_path / "translated").is_dir()
