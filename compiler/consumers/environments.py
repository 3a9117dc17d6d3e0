"""Environments that hold one release of a consumer each, layered over the running interpreter.

An environment is a virtual environment whose own packages are the pinned ones, linked from the
store (packages.py). Through a `.pth` file it falls back to the site-packages of the running
interpreter: torch and numpy are shared, never fetched again. Entries of a `.pth` file are appended
to `sys.path` (documentation of the standard library's `site` module), so the pinned packages win.
"""

import hashlib
import json
import os
import platform
import shutil
import site
import sys
import tempfile
import venv
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tunec.compiler.consumers.network import EnvironmentUnavailable
from tunec.compiler.consumers.packages import MODULES, PROGRAMS, link, unpacked

__all__ = ["Environment", "EnvironmentUnavailable", "default_cache", "digest", "prepare"]


@dataclass(frozen=True, slots=True)
class Environment:
    """Exactly `requirements`, layered over the running interpreter, in a folder made on demand."""

    requirements: tuple[str, ...]
    place: Path
    """The folder, which exists once the environment is made."""

    @property
    def root(self) -> Path:
        """The environment's folder, made if it is missing; two processes may make it at once.

        Raises EnvironmentUnavailable if a pin cannot be installed, for instance without a network;
        so do the properties below.
        """
        if not self.place.exists():
            _build(self.requirements, self.place)
        return self.place

    @property
    def python(self) -> Path:
        """The path of the interpreter that runs scripts."""
        return _interpreter(self.root)

    @property
    def packages(self) -> Path:
        """The folder of the environment's own packages."""
        return _site_packages(self.root)


def prepare(requirements: Sequence[str], cache: Path | None = None) -> Environment:
    """Return the environment that holds `requirements`; it is made when first used.

    `requirements` are exact pins (`name==version`), companions included: nothing else is resolved.
    `cache` defaults to `default_cache()`.
    """
    pins = tuple(sorted(requirements))
    return Environment(pins, (cache or default_cache()) / digest(pins))


def default_cache() -> Path:
    """The platform's cache directory, with tunec's name appended."""
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "tunec" / "consumers"


def digest(pins: Sequence[str]) -> str:
    """The name of an environment: a digest of its pins, its Python and its fallback directories."""
    facts = [sorted(pins), platform.python_version(), platform.machine(), _parents()]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]


def _parents() -> list[str]:
    """The site-packages directories that the running interpreter actually uses."""
    known = [*site.getsitepackages(), site.getusersitepackages()]
    return [path for path in known if path in sys.path and Path(path).is_dir()]


def _build(pins: tuple[str, ...], root: Path) -> None:
    """Build beside `root` and rename; if another process was first, drop the own copy."""
    root.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{root.name}-", dir=root.parent))
    try:
        venv.EnvBuilder(with_pip=False, symlinks=os.name != "nt").create(staging)
        for folder in unpacked(pins, root.parent):
            link(folder / MODULES, _site_packages(staging))
            if (folder / PROGRAMS).exists():
                link(folder / PROGRAMS, _interpreter(staging).parent)
        (_site_packages(staging) / "tunec-parent.pth").write_text(
            "\n".join(_parents()) + "\n", encoding="utf-8"
        )
        with suppress(OSError):
            staging.rename(root)
        if not root.exists():
            raise EnvironmentUnavailable(pins[0] if pins else "python", f"{root} cannot be written")
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _interpreter(root: Path) -> Path:
    return root / "Scripts" / "python.exe" if os.name == "nt" else root / "bin" / "python"


def _site_packages(root: Path) -> Path:
    if os.name == "nt":
        return root / "Lib" / "site-packages"
    return (
        root / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    )
