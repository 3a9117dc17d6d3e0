"""A fleet's tree is equal to the byte for any processes, order, locale, clock and Python."""

import os
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.fleet.fleets import write_fleet

from tunec.compiler.consumers.environments import default_cache

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.11", "3.12", "3.13")


def interpreter(release: str) -> Path | None:
    """An interpreter of a release that runs: on the path, or one that pyenv keeps."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = [shutil.which(f"python{release}"), *sorted(pyenv.glob(f"{release}.*/bin/python"))]
    for each in filter(None, found):
        said = subprocess.run(
            [each, "-c", "import sys, venv; print(sys.version)"], capture_output=True, text=True
        )
        if said.returncode == 0 and said.stdout.startswith(f"{release}."):
            return Path(each)
    return None


def core_of(release: str) -> tuple[Path | None, str]:
    """An interpreter with the core and its versions of here; or why there is none."""
    base = interpreter(release)
    if base is None:
        return None, f"there is no Python {release} here"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = [Requirement(each).name for each in project["dependencies"]]
    pins = sorted(f"{name}=={version(name)}" for name in names)
    folder = default_cache().parent / "pythons" / "-".join([release, *pins])
    python = folder / "bin/python"
    if not python.exists():
        staged = folder.with_name(f".{release}-{os.getpid()}")
        subprocess.run([base, "-m", "venv", staged], check=True, capture_output=True)
        install = [staged / "bin/python", "-m", "pip", "install", "-q", *pins]
        done = subprocess.run(install, capture_output=True, text=True)
        if done.returncode != 0:
            shutil.rmtree(staged)
            return None, f"the core's dependencies cannot be had: {done.stderr.strip()[-200:]}"
        staged.rename(folder)
    return python, ""


SURROUNDINGS = (
    {"PYTHONHASHSEED": "0", "LC_ALL": "C", "TZ": "UTC"},
    {"PYTHONHASHSEED": "1", "LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Kathmandu"},
    {"PYTHONHASHSEED": "4711", "PYTHONUTF8": "0", "LANG": "de_DE.ISO-8859-1", "COLUMNS": "40"},
)
CLUSTERS = "[a100-80g-x8, a100-40g-x8, g5.12xlarge, t4-x1, clusters/*.yaml]"
MORE = "[a100-80g-x8, a100-40g-x8, g5.*, p3.*, t4-x1, 'h100-*-x4', mi300x-x8, clusters/*.yaml]"


def built(
    folder: Path,
    jobs: int,
    surroundings: dict[str, str],
    python: Path = Path(sys.executable),
    clusters: str = CLUSTERS,
) -> dict[str, bytes]:
    """Every file of a tree, and what was printed; the first cluster is a file."""
    folder.mkdir()
    file = write_fleet(folder)
    old = "[a100-80g-x8, a100-40g-x8, g5.12xlarge, t4-x1]"
    assert old in file.read_text("utf-8")
    file.write_text(file.read_text("utf-8").replace(old, clusters), "utf-8")
    (folder / "clusters").mkdir()
    text = (ROOT / "schemas/hardware/clusters/g5.12xlarge.yaml").read_text("utf-8")
    assert "name: g5.12xlarge" in text
    (folder / "clusters/own.yaml").write_text(text.replace("g5.12xlarge", "a-first", 1), "utf-8")
    bare = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        [python, "-m", "tunec", "fleet", "fleet.yaml", "-o", "build", "-j", str(jobs)],
        capture_output=True,
        cwd=folder,
        env={**bare, "PYTHONPATH": str(ROOT / "src"), **surroundings},
    )
    assert done.returncode == 1, done.stderr
    tree = folder / "build"
    found = {f.relative_to(tree).as_posix(): f.read_bytes() for f in tree.rglob("*") if f.is_file()}
    return {**found, "<stdout>": done.stdout}


def assert_same(first: dict[str, bytes], other: dict[str, bytes]) -> None:
    assert len(first) > 30
    assert other.keys() == first.keys()
    assert [name for name in first if first[name] != other[name]] == []


def test_one_tree(tmp_path):
    first, *others = [
        built(tmp_path / f"{at}", jobs, each)
        for at, (jobs, each) in enumerate(zip((1, 2, 3), SURROUNDINGS, strict=True))
    ]
    for other in others:
        assert_same(first, other)


@pytest.fixture(scope="module")
def here(tmp_path_factory) -> dict[str, bytes]:
    return built(tmp_path_factory.mktemp("here") / "fleet", 1, SURROUNDINGS[0], clusters=MORE)


@pytest.mark.parametrize("release", VERSIONS)
def test_one_tree_on_every_python(here, tmp_path, release):
    python, missing = core_of(release)
    if python is None:
        pytest.skip(missing)
    at = VERSIONS.index(release)
    assert_same(here, built(tmp_path / "fleet", at + 1, SURROUNDINGS[at], python, MORE))
