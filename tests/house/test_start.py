"""What a start costs: no framework is imported, and `import tunec` imports next to nothing."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = "examples/minicpm-v-2_6-lora/spec.yaml"
HEAVY = {
    *("torch", "numpy", "deepspeed", "transformers", "accelerate", "peft", "trl", "diffusers"),
    *("pandas", "shtab", "huggingface_hub", "tokenizers", "importlib_metadata", "rich"),
}

RUN = """
import json, sys
from tunec.__main__ import main
sys.argv = ["tunec", *{arguments}]
code = main()
sys.stderr.write(json.dumps([code, sorted({{name.split(".")[0] for name in sys.modules}})]))
"""


def loaded_by(code: str) -> set[str]:
    code += "\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_import_of_tunec_loads_nothing_of_the_compiler():
    bare = loaded_by("import os, pathlib, typing, collections.abc, importlib")
    light = {"tunec", "tunec.compiler", "tunec.compiler.version"}
    assert loaded_by("import tunec") - bare == light


@pytest.mark.parametrize(
    "arguments",
    [
        ["compile", SPEC, "--target", "deepspeed"],
        ["compile", SPEC, "--format", "json"],
        ["plan", SPEC],
        ["explain", SPEC, "batch.micro"],
        ["catalog", "targets"],
        ["schema"],
        ["init"],
    ],
    ids=" ".join,
)
def test_command_imports_no_framework(arguments):
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(arguments=arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    code, modules = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done.stderr
    assert HEAVY & set(modules) == set()
    assert "tunec" in modules


LEAVE = """
import atexit, sys
from tunec.__main__ import leave
atexit.register(print, "registered")
sys.argv = ["tunec", *{arguments}]
leave()
"""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["catalog", "targets"], 0), (["compile", "examples/none.yaml", "--target", "deepspeed"], 1)],
    ids=["fine", "refused"],
)
def test_process_ends_with_all_that_was_written_and_the_exit_code(arguments, code):
    run = [sys.executable, "-c", LEAVE.format(arguments=arguments)]
    done = subprocess.run(run, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == code, done.stderr
    assert done.stdout.endswith("registered\n")
    assert ("deepspeed" in done.stdout) == (code == 0)
    assert bool(done.stderr) == (code != 0)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_output_that_cannot_be_written_is_not_a_success():
    run = [sys.executable, "-m", "tunec", "catalog", "targets"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(run, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert done.returncode != 0
    assert "No space left on device" in done.stderr


def test_a_wheel_that_is_not_installed_says_so(tmp_path: Path) -> None:
    """Its modules could be imported, but tables and started scripts are read as files."""
    with zipfile.ZipFile(tmp_path / "tunec.whl", "w") as wheel:
        for name in ("src/tunec/__init__.py", "compiler/__init__.py", "compiler/version.py"):
            wheel.write(ROOT / name, f"tunec/{name.removeprefix('src/tunec/')}")
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'tunec.whl')!r}); import tunec"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 1
    assert "ImportError: tunec does not run from an archive" in done.stderr
    assert "install the wheel with pip" in done.stderr
