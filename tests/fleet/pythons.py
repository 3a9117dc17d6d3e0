"""Other Pythons, each with what the core needs and nothing else."""

import os
import shutil
import subprocess
import tomllib
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement

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
