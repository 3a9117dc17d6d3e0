"""Source packages as their makers released them, fetched once and kept outside the repository."""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

from tunec.compiler.consumers.environments import default_cache

SECONDS = 300.0


def source_package(name: str, version: str) -> Path:
    """The folder of an unpacked source package; skips the test where it cannot be had."""
    folder = default_cache().parent / "sources" / f"{name}-{version}"
    if not folder.exists():
        _fetch(name, version, folder)
    return folder


def _fetch(name: str, version: str, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        _download(f"{name}=={version}", staging)
        (archive,) = staging.glob("*.tar.gz")
        with tarfile.open(archive) as opened:
            opened.extraction_filter = getattr(tarfile, "data_filter", None)
            opened.extractall(staging / "out")  # noqa: S202  a release from the index, by version
        (root,) = (staging / "out").iterdir()
        root.rename(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _download(pin: str, into: Path) -> None:
    options = ["--no-deps", "--no-binary", ":all:", "--ignore-requires-python", "-q", "-d"]
    command = [sys.executable, "-m", "pip", "download", *options, str(into), pin]
    # setuptools and the like are needed to ask a source package for its name: wheels will do
    command[command.index(":all:")] = pin.partition("==")[0]
    try:
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as failure:
        said = str(failure.stderr or failure).strip().splitlines()
        pytest.skip(f"{pin} cannot be had: {said[-1] if said else 'pip said nothing'}")
