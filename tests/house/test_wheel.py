"""The wheel: only `tunec/` inside, with its data, and it compiles a spec where nothing else is."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "examples/minicpm-v-2_6-lora/spec.yaml"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def names(wheel) -> list[str]:
    return zipfile.ZipFile(wheel).namelist()


def test_nothing_but_tunec_lands_in_site_packages(names):
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tunec"}


def test_every_module_and_every_datum_is_inside_once(names):
    kept = {".py", ".yaml", ".json", ".md", ".typed", ".css", ".js"}
    wanted = {
        f"tunec/{file.relative_to(ROOT).as_posix()}"
        for folder in ("compiler", "schemas", "targets")
        for file in (ROOT / folder).rglob("*")
        if file.suffix in kept
    }
    wanted |= {"tunec/__init__.py", "tunec/__main__.py", "tunec/py.typed"}
    inside = [name for name in names if name.startswith("tunec/")]
    assert sorted(inside) == sorted(wanted)


def test_license_goes_with_it(names):
    assert any(name.endswith("LICENSE") for name in names)


def test_installed_wheel_compiles_an_example(wheel, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel]
    subprocess.run(install, check=True, timeout=600)
    command = [python, "-m", "tunec", "compile", SPEC, "--target", "deepspeed"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    here = [sys.executable, "-m", "tunec", "compile", SPEC, "--target", "deepspeed"]
    assert done.stdout == subprocess.run(here, capture_output=True, text=True).stdout
    frozen = subprocess.run([python, "-m", "pip", "list"], capture_output=True, text=True).stdout
    assert "torch" not in frozen
