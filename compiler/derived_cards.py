"""Where derived cards are found and kept, and how one is made of a config.

A card is looked for among those that come with tunec, then in the user's cache. Where there is none
and the real libraries are installed, it is made in a process of its own, and kept. Every command
imports this module, and few ask it for more than a path: what they need is imported there.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tunec.schemas.models.derived_card import VERSION, DerivedCard, card_name, shipped

SECONDS: Final = 600.0
"""The longest that one may take to be made."""
NEEDED: Final = ("torch", "transformers")
KEY: Final = "tunec_card"
"""The key by which a card's file is told from a config.json."""


class NoCard(Exception):
    """There is no card of a config, and why none could be made."""


def card_of(config: Mapping[str, Any], model: str = "") -> DerivedCard:
    """Find the card of a config, or make it where the real libraries are installed.

    A card's own file may stand for its config. Raises NoCard with the reason.
    """
    if KEY in config:
        return read(json.dumps(config).encode())
    name = card_name(config)
    known = shipped(name)
    if known is not None:
        return known
    kept = _cache() / name
    if kept.exists() and not _is_outdated(found := read(kept.read_bytes())):
        return found
    return read(make(config, model))


def is_at_hand(config: Mapping[str, Any]) -> bool:
    """Whether the card of a config is there, without making it."""
    name = card_name(config)
    return KEY in config or shipped(name) is not None or (_cache() / name).exists()


def _is_outdated(found: DerivedCard) -> bool:
    """Whether it was made by another release of the library than the one that is installed."""
    from importlib.metadata import PackageNotFoundError, version

    package, _, release = found.release.partition(" ")
    try:
        return version(package) != release
    except PackageNotFoundError:
        return False


def read(content: bytes) -> DerivedCard:
    """Read a card's file. Raises NoCard where it is none of this version."""
    try:
        found = DerivedCard.of_json(content)
    except ValueError as fault:
        raise NoCard(f"its card cannot be read: {fault}") from None
    if found.tunec_card != VERSION:
        raise NoCard(f"its card is of version {found.tunec_card}, and this is {VERSION}")
    return found


def make(config: Mapping[str, Any], model: str = "") -> bytes:
    """Make the card of a config and keep it in the user's cache.

    Raises NoCard where a library is absent, or the class cannot be followed.
    """
    import subprocess
    import tempfile

    needed = (*NEEDED, *(("diffusers",) if "_class_name" in config else ()))
    absent = [name for name in needed if importlib.util.find_spec(name) is None]
    if absent:
        raise NoCard(f"{' and '.join(absent)} cannot be imported: install tunec[trace]")
    place = _cache() / card_name(config)
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "config.json", Path(folder) / "card.json"
        given.write_text(json.dumps({"model": model, "config": config}, default=str), "utf-8")
        # -P: nothing in the directory of the command stands in for a library
        command = [sys.executable, "-P", "-m", "tunec.compiler.tracing.derivation"]
        try:
            ended = subprocess.run(  # noqa: S603  this interpreter, on files of our own
                [*command, str(given), str(made)],
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NoCard(f"its class took more than {SECONDS:.0f} s to follow") from None
        if not made.exists():
            raise NoCard(_last_line(ended.stderr))
        content = made.read_bytes()
    _keep(place, content)
    return content


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "the process that makes it ended without a word"


def _keep(place: Path, content: bytes) -> None:
    """Write beside the place and rename; a cache that cannot be written is gone without."""
    import tempfile

    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=place.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(place)
    except OSError:
        return


def _cache() -> Path:
    from tunec.compiler.consumers.environments import default_cache

    return default_cache().parent / "cards"


def hub_config(name: str) -> Path | None:
    """The config.json of a repository in the local cache of the Hugging Face Hub.

    huggingface_hub 1.0 `constants.py` (`HF_HUB_CACHE`, `HF_HOME`) and `file_download.py`
    (`_get_pointer_path`): `models--OWNER--NAME/refs/main` names the snapshot.
    """
    home = os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface"
    hub = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")
    folder = hub / f"models--{name.replace('/', '--')}"
    try:
        revision = (folder / "refs" / "main").read_text("utf-8").strip()
        found = folder / "snapshots" / revision / "config.json"
        return found if found.is_file() else None
    except (OSError, ValueError):
        return None
