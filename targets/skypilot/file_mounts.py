"""What a task copies to its machines: the user's own files, and installed packages."""

import posixpath
from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.python_releases import preferred, pythons, spelled
from tunec.compiler.target import ALWAYS, Entry, Json, derived
from tunec.targets.launch.node_setup import (
    called,
    installed_packages,
    installed_torch,
    local_files,
    packages_line,
    setup_lines,
    setup_text,
    torch_line,
)

TASK_SCHEMA: Final = "skypilot 0.9.3 to 0.14.1 sky/utils/schemas.py `get_task_schema`"
_WORKDIR: Final = "~/sky_workdir"
"""skypilot 0.9.3 to 0.14.1 sky/skylet/constants.py `SKY_REMOTE_WORKDIR`."""


def mounted(path: str) -> str | None:
    """The path on the machine of a file that the run names so, relative to the bundle's root.

    None if no mount can put it there: above the home directory.
    """
    if path.startswith(("/", "~")):
        return path
    found = posixpath.normpath(posixpath.join(_WORKDIR, path))
    return found if found.startswith("~/") else None


def _write_setup(plan: Plan) -> Mapping[str, Json]:
    """The user's lines and the installation, which a container does not need."""
    setup = plan.job.setup
    text = f"{setup_text(setup)}{called(setup)}{_installed(plan)}"
    return {"setup": f"set -e\n{text}"} if text else {}


def _installed(plan: Plan) -> str:
    """The lines that install torch and the packages, on a Python that they accept."""
    lines = f"{torch_line(plan)}{packages_line(plan)}"
    if plan.job.image or not lines:
        return ""
    return f"{_python(plan, make=True)}{lines}"


def chosen_python(plan: Plan) -> str:
    """The lines that find the Python in which `setup` installed the packages."""
    return "" if plan.job.image else _python(plan, make=False)


_PYTHON: Final = """\
if ! python -c 'import sys; sys.exit(not ({first}) <= sys.version_info[:2] <= ({last}))'; then
{make}  export PATH="${{HOME}}/{folder}/bin:${{PATH}}"
fi
"""
_MAKE: Final = """\
  [ -x ~/{folder}/bin/python ] || ~/.local/bin/uv venv --quiet --seed --python {python} ~/{folder}
"""


def _python(plan: Plan, *, make: bool) -> str:
    """A Python that the packages accept, if the machine's own is another; empty if any is.

    skypilot 0.9.3 to 0.13.0 install Miniconda with Python 3.10, 0.14.1 takes the image's, and all
    of them install uv (sky/skylet/constants.py `CONDA_INSTALLATION_COMMANDS`,
    `SKY_USER_ENV_CREATION_COMMANDS`, `SKY_UV_INSTALL_DIR`).
    """
    torch = [f"torch=={plan.job.torch}"] if plan.job.torch else []
    found = pythons([*torch, *plan.job.packages])
    if not spelled(found):
        return ""
    python = preferred(found)
    folder = f"python{python}"
    first, last = (each.replace(".", ", ") for each in (found[0], found[-1]))
    made = _MAKE.format(folder=folder, python=python) if make else ""
    return _PYTHON.format(first=first, last=last, make=made, folder=folder)


def _read_installed(found: Mapping[str, Json]) -> Mapping[str, Any]:
    text = found["setup"]
    torch = installed_torch(text)
    return {"job.packages": installed_packages(text), **({"job.torch": torch} if torch else {})}


def _installs(plan: Plan) -> bool:
    return plan.job.image is None


def _write_mounts(plan: Plan) -> Mapping[str, Json]:
    """The user's own files at the paths that the run uses: the bundle is `~/sky_workdir`."""
    outside = (path for path in local_files(plan) if path.startswith(("..", "/", "~")))
    pairs = ((path, mounted(path)) for path in outside)
    found = {remote: path for path, remote in pairs if remote is not None}
    return {"file_mounts": found} if found else {}


_SETUP: Final = f"{TASK_SCHEMA}: `setup` runs on each machine, before `run`"
BROUGHT: Final = (
    derived(
        "file_mounts",
        lambda plan: _write_mounts(plan).get("file_mounts"),
        f"{TASK_SCHEMA}; sky/skylet/constants.py `SKY_REMOTE_WORKDIR`",
    ),
    Entry(
        ("setup",),
        ("job.setup",),
        _write_setup,
        lambda found: {"job.setup": setup_lines(found["setup"])},
        _SETUP,
        absent=((ALWAYS, {"job.setup": ()}),),
    ),
    Entry(
        ("setup",),
        ("job.packages",),
        _write_setup,
        _read_installed,
        _SETUP,
        absent=((ALWAYS, {"job.packages": ()}),),
        when=_installs,
    ),
    Entry(
        ("setup",),
        ("job.torch",),
        _write_setup,
        _read_installed,
        f"{_SETUP}; schemas/torch_builds.py",
        when=lambda plan: _installs(plan) and bool(torch_line(plan)),
    ),
)
