"""`tunec verify` as people run it: directories, versions, exit codes, what is not checked."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.verify.edited_runs import EXAMPLES, SPECS, cases

from tunec.compiler.cli.main import run
from tunec.compiler.verify.queries import verify
from tunec.schemas.frozen import replace
from tunec.targets.registry import REGISTRY

SPEC = SPECS["deepspeed"][0]


def main(arguments):
    return run(arguments, REGISTRY, "0")


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC)
    return path


def said(capsys, *arguments):
    code = main(["verify", *map(str, arguments), "--format", "json"])
    return code, json.loads(capsys.readouterr().out)


def compiled(spec, target):
    out = spec.parent / "out"
    assert main(["compile", str(spec), "--target", target, "-o", str(out)]) == 0
    return out


def skip_unchecked(checks):
    reasons = {each["reason"] for each in checks if each["status"] == "unchecked"}
    if reasons:
        pytest.skip(f"not checked: {reasons}")


def test_several_versions_stand_side_by_side(spec, capsys):
    code, found = said(capsys, spec, "--target", "deepspeed@0.18", "--target", "deepspeed@0.19")
    skip_unchecked(found["checks"])
    assert code == 0
    assert {each["version"] for each in found["checks"]} == {"0.18.9", "0.19.8"}
    assert {each["status"] for each in found["checks"]} == {"same"}
    assert all(len(each["compared"]) > 5 for each in found["checks"])


def test_a_directory_edited_by_hand_is_found_out(spec, capsys):
    out = compiled(spec, "launch")
    script = out / "launch" / "launch.sh"
    script.write_text(script.read_text().replace("num_gpus=8", "num_gpus=4"))
    code = main(["verify", str(out), "--spec", str(spec)])
    captured = capsys.readouterr()
    assert code == 1
    if "not checked:" not in captured.out:
        assert f"per_node of {script.as_posix()} resolves to 4, but the plan has 8" in captured.err
        assert f"{script.as_posix()}:6:" in captured.err


def test_the_spec_may_lie_in_the_directory(spec, capsys):
    out = compiled(spec, "launch")
    (out / "run.yaml").write_text(SPEC)
    code, found = said(capsys, out)
    skip_unchecked(found["checks"])
    assert code == 0


def test_a_file_that_is_missing_is_not_a_pass(spec, capsys):
    out = compiled(spec, "launch")
    (out / "launch" / "launch.sh").unlink()
    code, found = said(capsys, out, "--spec", spec)
    assert code == 1
    assert [each["status"] for each in found["checks"]] == ["differs"]
    assert found["checks"][0]["differences"][0]["file"] == "launch/launch.sh"


def test_a_release_that_cannot_be_had_is_not_checked_and_not_passed(spec, capsys):
    code, found = said(capsys, spec, "--target", "deepspeed@0.17.5")
    assert code == 1
    assert {each["status"] for each in found["checks"]} == {"unchecked"}
    assert "no set of packages is known to work" in found["checks"][0]["reason"]
    code, _ = said(capsys, spec, "--target", "deepspeed@0.17.5", "--allow-unchecked")
    assert code == 0


@pytest.mark.real
def test_what_takes_too_long_is_not_checked(spec, capsys):
    code, found = said(capsys, spec, "--target", "launch", "--time-limit", "0.001")
    assert code == 1
    assert {each["status"] for each in found["checks"]} == {"unchecked"}
    assert "took over" in found["checks"][0]["reason"]


def test_a_package_that_is_not_there_is_not_checked(monkeypatch):
    monkeypatch.setattr("tunec.compiler.verify.queries.find_spec", lambda _: None)
    (check, *_) = verify([cases("ddp")["launch"]])
    assert (check.status, check.reason) == (
        "unchecked",
        "torch cannot be had: it is not installed alongside tunec",
    )


@pytest.mark.parametrize("argument", ["empty", "two"])
def test_a_directory_without_its_spec_is_wrong_usage(argument, tmp_path, capsys):
    folder = tmp_path / argument
    (folder / "launch").mkdir(parents=True)
    if argument == "two":
        for name in ("a.yaml", "b.yaml"):
            (folder / name).write_text(SPEC)
    assert main(["verify", str(folder)]) == 2
    assert "--spec" in capsys.readouterr().err


def test_a_spec_with_faults_is_told(tmp_path, capsys):
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC.replace("llama-3.1-8b", "llama-9"))
    code, found = said(capsys, path, "--target", "launch")
    assert code == 1
    assert found["checks"] == []
    assert [each["id"] for each in found["diagnostics"]]


def test_a_p100_is_judged_as_a_p100():
    """DeepSpeed's own gate: fp16 on compute capability 6.0 needs the variable of the plan."""
    case = cases("p100")["deepspeed"]
    without = replace(case.plan, launch=replace(case.plan.launch, environment=()))
    allowed, refused = replace(case, spec="allowed"), replace(case, spec="refused", plan=without)
    found = {c.spec: c for c in verify([allowed, refused]) if c.program == "DeepSpeedConfig"}
    if any(each.status == "unchecked" for each in found.values()):
        pytest.skip(f"not checked: {found}")
    assert found["allowed"].status == "same"
    assert found["refused"].status == "refused"
    assert "fp16 is not supported" in found["refused"].reason


STILL = """
import time
def wait(question):
    time.sleep(600)
VERBS = {"wait": wait}
"""


@pytest.mark.parametrize("before", [0, 1], ids=["plain", "forked"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_killed_run_leaves_no_process(number, before, tmp_path):
    """Also where tunec is killed without a chance to clean up: the question's process notices."""
    package = tmp_path / "still"
    package.mkdir()
    (package / "script.py").write_text(STILL + f"open({str(tmp_path / 'pid')!r}, 'w').write('x')\n")
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from tunec.compiler.consumers.queries import ask\n"
        "from tunec.compiler.consumers.environments import Environment, prepare\n"
        "from tunec.compiler.consumers import processes\n"
        f"processes._SERVERS._runs = {before}\n"
        f"ask(prepare(()), 'still.script', [{{'verb': 'wait'}}], 500, Path({str(package)!r}))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", _SIGNALLED + code], stderr=subprocess.DEVNULL, cwd=tmp_path
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "pid").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    children = _descendants(process.pid)
    assert children
    process.send_signal(number)
    process.wait(20)
    while any(map(_lives, children)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [each for each in children if _lives(each)]


_SIGNALLED = (
    "import signal\n"
    "from tunec.compiler.cli.session import ended_by_signals\n"
    "ended_by_signals().__enter__()\n"
)


def _descendants(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir() if Path("/proc").exists() else ():
        for child in (task / "children").read_text().split():
            found += [int(child), *_descendants(int(child))]
    return found


def _lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_examples_are_found_by_directory(capsys, monkeypatch):
    """`tunec verify examples/*`: every spec in a directory, for every target that can say it."""
    asked = []
    monkeypatch.setattr(
        "tunec.compiler.cli.verify_command.verify", lambda found, *_: asked.extend(found) or ()
    )
    main(["verify", str(EXAMPLES / "five-lines"), str(EXAMPLES / "simpletuner-flux-lora")])
    capsys.readouterr()
    assert {(each.spec, each.target.name) for each in asked} >= {
        ("spec", "deepspeed"),
        ("spec", "huggingface"),
        ("spec", "launch"),
        ("simpletuner-flux-lora", "simpletuner"),
    }


def test_a_target_that_nothing_is_asked_about_is_not_checked():
    case = cases("ddp")["launch"]
    (check,) = verify([replace(case, target=replace(case.target, verify=""))])
    assert check.status == "unchecked"
    assert "no program is known" in check.reason
