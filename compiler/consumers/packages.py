"""Packages of consumers: each pin unpacked once, in a store that all environments link to.

Environments of one consumer differ in a pin or two. What they share is fetched once, lies on the
disk once, and its modules are compiled once, by whichever environment imports them first.
"""

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

from packaging.utils import canonicalize_name

from tunec.compiler.consumers.lock import lock, requirements, sources
from tunec.compiler.consumers.network import EnvironmentUnavailable, fetching

INSTALL_SECONDS: Final = 900.0
MODULES: Final = "modules"
PROGRAMS: Final = "programs"


def unpacked(pins: Sequence[str], cache: Path) -> tuple[Path, ...]:
    """A folder for each pin; which is not there is installed.

    In it, MODULES is what the pin puts into a site-packages, and PROGRAMS, where there are any,
    what it puts on the path. Two processes may ask for the same pin at once: who comes second drops
    its own. Raises EnvironmentUnavailable.
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
    """Show what `folder` holds in `into`; a folder that is there from another pin is merged."""
    for each in folder.iterdir():
        place = into / each.name
        if not place.exists():
            _link(each, place)
        elif each.is_dir() and place.is_dir():
            _part(place)
            link(each, place)


def _part(place: Path) -> None:
    """Make a folder of a link to one."""
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
    """Install all pins at once; where that fails one by one, to name the one at fault."""
    try:
        _store(pins, store, work)
    except EnvironmentUnavailable:
        for pin in pins:
            _store((pin,), store, work)


def _store(pins: Sequence[str], store: Path, work: Path) -> None:
    """Install into a folder of its own under `work`, then move each pin's part to its place."""
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
    """Move what the wheel's RECORD names into a folder, and that to its place."""
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
    """Where a file of RECORD is, and where it is kept.

    Beside its modules, pip's `--target` keeps programs in `bin`; RECORD says where they would lie.
    """
    if ".." in file.parts:
        return folder / "bin" / file.name, f"{PROGRAMS}/{file.name}"
    return folder / file, f"{MODULES}/{file}"


def _is_script(path: Path) -> bool:
    """Whether it names its interpreter: that would be ours, and not the environment's."""
    with path.open("rb") as file:
        return file.read(2) == b"#!"


def _pip(pins: Sequence[str], folder: Path) -> None:
    """Install what is locked by its digests, the rest by its names: tunec itself asks no other."""
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
    """The installer's own last error line, or its last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["the installer said nothing"])[-1]
