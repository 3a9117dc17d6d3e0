"""Packages of consumers: each pin is unpacked once, in a store that all environments link to.

Environments of one consumer differ in one or two pins. Shared packages are fetched once, take disk
space once, and are compiled once, by the environment that first imports them.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePath
from typing import Final

from msgspec import Struct
from packaging.utils import canonicalize_name

from tunec.compiler.consumers.network import EnvironmentUnavailable, fetching
from tunec.schemas.caches import cached

FILE: Final = Path(__file__).with_name("lock.json")


class Locked(Struct, frozen=True):
    """The files of one pin that pip may install."""

    sha256: tuple[str, ...]
    is_source: bool
    """Whether the pin is only published as source, whose build runs when it is installed."""


@cached()
def lock() -> Mapping[str, Locked]:
    """Every locked pin by `name==version`."""
    data = json.loads(FILE.read_text("utf-8"))
    return {
        pin: Locked(tuple(digests), is_source=kind == "sources")
        for kind, pins in data.items()
        for pin, digests in pins.items()
    }


def requirements(pins: Sequence[str]) -> str:
    """The pins as a requirements file for pip, each with its digests. Raises KeyError."""
    return "".join(f"{pin} {_hashes(lock()[pin])}\n" for pin in pins)


def _hashes(locked: Locked) -> str:
    return " ".join(f"--hash=sha256:{each}" for each in locked.sha256)


def sources(pins: Sequence[str]) -> tuple[str, ...]:
    """The names of the pins that are built here, since no wheel of them is published."""
    return tuple(pin.partition("==")[0] for pin in pins if lock()[pin].is_source)


INSTALL_SECONDS: Final = 900.0
MODULES: Final = "modules"
PROGRAMS: Final = "programs"


def unpacked(pins: Sequence[str], cache: Path) -> tuple[Path, ...]:
    """A folder for each pin; missing pins are installed.

    In each folder, MODULES holds the pin's site-packages, and PROGRAMS its programs, if there are
    any. Two processes may install one pin at once: the second drops its own copy. Raises
    EnvironmentUnavailable.
    """
    kind = f"{sys.implementation.cache_tag}-{platform.system()}-{platform.machine()}"
    store = cache / "packages" / kind
    missing = [pin for pin in pins if not (store / pin).exists()]
    if missing:
        unlocked = [pin for pin in missing if pin not in lock()]
        fetching(missing, "the package index", unlocked)
        _install(missing, store, cache)
    return tuple(store / pin for pin in pins)


def link(folder: Path, into: Path) -> None:
    """Link the content of `folder` into `into`; folders that another pin has created are merged."""
    for each in folder.iterdir():
        place = into / each.name
        if not place.exists():
            _link(each, place)
        elif each.is_dir() and place.is_dir():
            _part(place)
            link(each, place)


def _part(place: Path) -> None:
    """Replace a link to a folder by a folder of links."""
    if place.is_symlink():
        there = place.resolve()
        place.unlink()
        place.mkdir()
        link(there, place)


def _link(there: Path, place: Path) -> None:
    try:
        place.symlink_to(there, target_is_directory=there.is_dir())
    except OSError:  # Windows lets only some users make links
        copy = shutil.copytree if there.is_dir() else shutil.copy2
        copy(there, place)


def _install(pins: Sequence[str], store: Path, work: Path) -> None:
    """Install all pins at once; if that fails, install them one by one to find the one at fault."""
    try:
        _store(pins, store, work)
    except EnvironmentUnavailable:
        for pin in pins:
            _store((pin,), store, work)


def _store(pins: Sequence[str], store: Path, work: Path) -> None:
    """Install into a temporary folder under `work`, then move each pin's files to its place."""
    with tempfile.TemporaryDirectory(prefix=".packages-", dir=work) as name:
        folder = Path(name)
        _pip(pins, folder)
        installed = _by_name(distributions(path=[str(folder)]))
        for pin in pins:
            found = installed.get(canonicalize_name(pin.partition("==")[0]))
            if found is None:
                raise EnvironmentUnavailable(pin, "the installer put nothing in its place")
            _keep(found, folder, store / pin)


def _by_name(found: Iterable[Distribution]) -> Mapping[str, Distribution]:
    return {canonicalize_name(each.metadata["Name"]): each for each in found}


def _keep(distribution: Distribution, folder: Path, place: Path) -> None:
    """Move the files that the wheel's RECORD lists into a folder, and that folder to `place`."""
    place.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    (staging / MODULES).mkdir()
    try:
        for file in distribution.files or ():
            here, there = _moves(file, folder)
            if here.is_file() and not (there.startswith(PROGRAMS) and _is_script(here)):
                (staging / there).parent.mkdir(parents=True, exist_ok=True)
                here.rename(staging / there)
        with suppress(OSError):
            staging.rename(place)
        if not place.exists():
            raise EnvironmentUnavailable(place.name, f"{place} cannot be written")
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _moves(file: PurePath, folder: Path) -> tuple[Path, str]:
    """The path of a file of RECORD, and its path in the store.

    pip's `--target` puts programs in `bin` beside the modules, while RECORD has their usual paths.
    """
    if ".." in file.parts:
        return folder / "bin" / file.name, f"{PROGRAMS}/{file.name}"
    return folder / file, f"{MODULES}/{file}"


def _is_script(path: Path) -> bool:
    """Whether a file starts with `#!`: its interpreter would be ours, not the environment's."""
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def _pip(pins: Sequence[str], folder: Path) -> None:
    """Install locked pins by digest and others by name; tunec itself only uses locked pins."""
    locked = [pin for pin in pins if pin in lock()]
    others = [pin for pin in pins if pin not in lock()]
    if locked:
        listed = folder / "requirements.txt"
        listed.write_text(requirements(locked), "utf-8")
        built = (word for name in sources(locked) for word in ("--no-binary", name))
        hashed = ("--require-hashes", "--only-binary", ":all:", *built)
        _run((*hashed, "--requirement", str(listed)), folder, locked[0])
        listed.unlink()
    if others:
        _run(others, folder, others[0])


def _run(arguments: Sequence[str], folder: Path, first: str) -> None:
    # A pin is asked as it is: simpletuner 4.10.1 declares Python 3.12 and its parsers run on 3.11.
    # Compiling is left to the first import, since most modules of a consumer are never imported.
    options = ["--no-deps", "--no-compile", "--ignore-requires-python", "--no-input", "-q"]
    start = [sys.executable, "-P", "-m", "pip", "install", *options, "--target", str(folder)]
    # DeepSpeed compiles nothing at install with this set: its setup.py, "DS_BUILD_OPS".
    own = {"DS_BUILD_OPS": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_REQUIRE_VIRTUALENV": "0"}
    try:
        subprocess.run(  # noqa: S603
            [*start, *arguments],
            env={**os.environ, **own},
            check=True,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
        )
    except subprocess.CalledProcessError as failure:
        reason = _complaint(failure.stderr or failure.stdout)
        raise EnvironmentUnavailable(first, reason) from failure
    except subprocess.TimeoutExpired as failure:
        reason = f"installing took over {INSTALL_SECONDS:.0f} s"
        raise EnvironmentUnavailable(first, reason) from failure


def _complaint(text: str) -> str:
    """The installer's last error line, or its last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["the installer said nothing"])[-1]
