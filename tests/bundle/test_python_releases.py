"""The releases of Python on which a bundle's packages install."""

import json
import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

import tunec
from tunec.compiler.python_releases import DECLARED, KNOWN, preferred, pythons, spelled

SPEC = {
    "tunec": 1,
    "model": "qwen3-8b",
    "method": "lora",
    "data": {"train": "train.jsonl", "samples": 1000, "sequence": 1024},
    "hardware": "a100-80g-x8",
    "engine": "deepspeed",
}
BASH = shutil.which("bash")


@pytest.mark.parametrize(
    ("requirements", "expected"),
    [
        (["trl==1.16.0", "torch==2.13.0"], "3.11 to 3.14"),
        (["trl==1.16.0", "torch==2.13.0+cu130"], "3.11 to 3.14"),
        (["simpletuner==4.10.1", "torch==2.13.0", "diffusers"], "3.12 to 3.14"),
        (["axolotl==0.21.0"], "3.12 or later"),
        (["unsloth[studio]==2025.3.5", "transformers==5.0.0"], "3.10 to 3.12"),
        (["torch==1.13.1", "transformers==5.23.0"], "3.11"),
        (["trl", "torch"], ""),
    ],
)
def test_releases_that_accept_every_pin(requirements, expected):
    assert spelled(pythons(requirements)) == expected


def test_the_one_to_install_is_among_them():
    found = pythons(["torch==1.13.1", "transformers==5.23.0"])
    assert preferred(found) == "3.11"
    assert preferred(pythons(["torch==2.13.0"])) == "3.12"


def test_rows_stand_in_the_order_of_their_releases():
    for rows in DECLARED.values():
        assert all(Version(first) < Version(later) for (first, _), (later, _) in pairwise(rows))


def test_the_requirements_name_them(tmp_path):
    written = _compiled(tmp_path, "trl")
    assert "# Python 3.11 to 3.14\n" in written["requirements.txt"]


# ── on a rented machine ──────────────────────────────────────────────────────────────────────────


@pytest.mark.skipif(BASH is None, reason="there is no bash")
@pytest.mark.parametrize("machine", ["3.10", "3.12", "none"])
def test_skypilot_installs_with_a_python_that_the_packages_accept(machine, tmp_path):
    task = yaml.safe_load(_compiled(tmp_path, "trl", "skypilot")["skypilot/task.yaml"])
    home = _home(tmp_path / "home", machine)
    told = [_told(task["setup"], home), *(_told(task["run"], home) for _ in range(2))]
    made = home / "python3.12/bin"
    by = "machine" if machine == "3.12" else "made"
    assert made.exists() is (by == "made")
    assert told == [[f"pip {by}", f"pip {by}"], *[[f"deepspeed {by}"]] * 2]


def test_the_machines_own_python_is_judged_by_its_release(tmp_path):
    task = yaml.safe_load(_compiled(tmp_path, "trl", "skypilot")["skypilot/task.yaml"])
    check = task["setup"].split("python -c '")[1].split("'; then")[0]
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
    older = check.replace("sys.version_info", "(3, 10, 4)")
    assert subprocess.run([sys.executable, "-c", older], check=False).returncode == 1


def _compiled(folder: Path, *targets: str) -> dict[str, str]:
    (folder / "spec.yaml").write_text(json.dumps(SPEC), "utf-8")
    compiled = tunec.compile(folder / "spec.yaml", targets=targets, output=folder / "out")
    assert compiled.ok, compiled.diagnostics
    return compiled.texts()


_UV = """\
[ "$*" = "venv --quiet --seed --python 3.12 ${HOME}/python3.12" ] || exit 9
mkdir -p ~/python3.12/bin
cp ~/made/* ~/python3.12/bin
"""


def _home(home: Path, machine: str) -> Path:
    """A machine's home directory with its programs, and those that uv would install."""
    suits = {"3.10": 1, "3.12": 0}
    for folder, code in (("bin", suits.get(machine)), ("made", 0)):
        whose = "machine" if folder == "bin" else "made"
        for name in ("pip", "deepspeed"):
            _program(home / folder / name, f'echo "{name} {whose}"\n')
        if code is not None:
            _program(home / folder / "python", f"exit {code}\n")
    _program(home / ".local/bin/uv", _UV)
    return home


def _program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}", "utf-8")
    path.chmod(0o755)


def _told(script: str, home: Path) -> list[str]:
    assert BASH is not None
    path = os.pathsep.join([str(home / "bin"), "/usr/bin", "/bin"])
    hidden = script.replace("python -c", "hidden -c") if not (home / "bin/python").exists() else ""
    done = subprocess.run(
        [BASH, "-c", hidden or script],
        env={"HOME": str(home), "PATH": path},
        cwd=home,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


# ── what the index declares ──────────────────────────────────────────────────────────────────────


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(DECLARED))
def test_the_index_declares_the_same(name):
    found = _declared(name)
    rows = [(Version(first), SpecifierSet(needs)) for first, needs in DECLARED[name]]
    for release, accepted in sorted(found.items()):
        told = [needs for first, needs in rows if first <= release]
        if told:
            assert {each for each in KNOWN if each in told[-1]} == accepted, release


_BY_TAGS = frozenset({"openrlhf", "sglang", "torch"})


def _declared(name: str) -> dict[Version, set[str]]:
    """The Python releases that each release of a distribution accepts, by the index."""
    url = f"https://pypi.org/simple/{name}/"
    asked = Request(url, headers={"Accept": "application/vnd.pypi.simple.v1+json"})
    try:
        with urlopen(asked, timeout=120) as answer:  # noqa: S310  of PyPI
            files = json.load(answer)["files"]
    except (URLError, TimeoutError) as error:
        pytest.skip(f"the package index cannot be asked: {error}")
    found: dict[Version, set[str]] = {}
    for each in files:
        release, tags = _parsed(each["filename"])
        if release is None or release.is_prerelease:
            continue
        needs = SpecifierSet(each.get("requires-python") or "")
        accepted = {minor for minor in KNOWN if minor in needs}
        if name in _BY_TAGS:
            accepted &= _tagged(tags)
        found[release] = found.get(release, set()) | accepted
    return {release: accepted for release, accepted in found.items() if accepted}


def _parsed(file: str) -> tuple[Version | None, frozenset[Tag]]:
    try:
        if file.endswith(".whl"):
            _, release, _, tags = parse_wheel_filename(file)
            return release, tags
        return parse_sdist_filename(file)[1], frozenset()
    except (InvalidWheelFilename, ValueError):
        return None, frozenset()


def _tagged(tags: frozenset[Tag]) -> set[str]:
    """The releases of Python that a Linux wheel is for."""
    linux = (each for each in tags if "linux" in each.platform and "x86_64" in each.platform)
    named = {each.interpreter for each in linux}
    return {each for each in KNOWN if f"cp{each.replace('.', '')}" in named}
