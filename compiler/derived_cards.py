"""Finds and stores derived cards, and makes one from a config.

A card is looked up among those that come with tunec, then in the user's cache. If there is none and
the real libraries are installed, a separate process makes the card, and it is stored. Every command
imports this module and most only need a path, so other imports are inside the functions.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tunec.schemas.models.derived_card import VERSION, DerivedCard, card_name, shipped

if TYPE_CHECKING:
    from subprocess import CompletedProcess

SECONDS: Final = 600.0
"""The time limit for making a card."""
NEEDED: Final = ("torch", "transformers")
REFUSED: Final = 3
"""The exit code of the process that makes a card, if it gives a reason for making none."""
KEY: Final = "tunec_card"
"""The key that distinguishes a card's file from a config.json."""
_PARTS: Final = ("", "transformer", "unet")
"""Folders of a repository in which a config.json is looked for; those of a pipeline come last."""
_PIPELINE: Final = "model_index.json"
"""The file in the folder of a diffusers pipeline (diffusers 0.42.1 `DiffusionPipeline`)."""

_PIPELINE_CLASS: Final = "tunec_pipeline"
"""The key of a config that was read for the class of its pipeline."""


class NoCard(ValueError):
    """A config has no card, and none could be made.

    `code` is the diagnostic's code, `at` the key of the config that is at fault ("" for all of it).
    """

    def __init__(
        self, reason: str, *, help: str | None = None, code: str = "E0315", at: str = ""
    ) -> None:
        super().__init__(reason)
        self.help = help
        self.code = code
        self.at = at


def card_of(config: Mapping[str, Any], model: str = "", code: Path | None = None) -> DerivedCard:
    """Find the card of a config, or make it if the real libraries are installed.

    A card's own file may stand in for its config. `code` is as for `make`. Raises NoCard with the
    reason.
    """
    if KEY in config:
        return read(json.dumps(config).encode())
    _check_family(config)
    name = card_name(config)
    known = shipped(name)
    if known is not None:
        return known
    try:
        kept = _kept(name)
    except NoCard as unread:
        return _made_anew(config, model, code, unread)
    return kept or read(make(config, model, code))


def _kept(name: str) -> DerivedCard | None:
    """The card in the user's cache; None if there is none, or if another library release made it.

    Raises NoCard if this release of tunec cannot read it.
    """
    place = _cache() / name
    if not place.exists():
        return None
    found = read(place.read_bytes())
    return None if _is_outdated(found) else found


def _made_anew(
    config: Mapping[str, Any], model: str, code: Path | None, unread: NoCard
) -> DerivedCard:
    """Make the card of a config again, since the one in the cache could not be read."""
    try:
        return read(make(config, model, code))
    except NoCard as reason:
        told = f"{unread}, where it is kept; it is made anew where {reason}"
        raise NoCard(told, help=reason.help, code=reason.code, at=reason.at) from None


def _check_family(config: Mapping[str, Any]) -> None:
    """Raise NoCard if a config names neither a family nor a class of diffusers."""
    if not (config.get("model_type") or config.get("_class_name")):
        raise NoCard(
            "the config names no family",
            help="write `model_type`, as transformers calls the family",
            code="E0312",
        )


def is_at_hand(config: Mapping[str, Any]) -> bool:
    """Whether the card of a config exists already."""
    name = card_name(config)
    try:
        return KEY in config or shipped(name) is not None or _kept(name) is not None
    except NoCard:
        return False


def _is_outdated(found: DerivedCard) -> bool:
    """Whether another release of the library than the installed one made the card."""
    from importlib.metadata import PackageNotFoundError, version

    package, _, release = found.release.partition(" ")
    try:
        return version(package) != release
    except PackageNotFoundError:
        return False


def read(content: bytes) -> DerivedCard:
    """Read a card's file. Raises NoCard if its format is not of this version."""
    try:
        found = DerivedCard.of_json(content)
    except ValueError as fault:
        raise NoCard(f"its card cannot be read: {fault}") from None
    if found.tunec_card != VERSION:
        raise NoCard(f"its card is of version {found.tunec_card}, and this is {VERSION}")
    return found


def make(config: Mapping[str, Any], model: str = "", code: Path | None = None) -> bytes:
    """Make the card of a config and store it in the user's cache.

    `code` is the directory with the config's own code, which may then be run (`auto_map`); None: no
    such code is run. Raises NoCard if a library is missing, or the class cannot be followed.
    """
    import tempfile

    _check_family(config)
    needed = (*NEEDED, *(("diffusers",) if "_class_name" in config else ()))
    absent = [name for name in needed if importlib.util.find_spec(name) is None]
    if absent:
        raise NoCard(f"{' and '.join(absent)} cannot be imported", help=_install(model))
    asked = {"model": model, "config": config, "code": str(code.resolve()) if code else None}
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "config.json", Path(folder) / "card.json"
        given.write_text(json.dumps(asked, default=str), "utf-8")
        ended = _derive(given, made)
        if not made.exists():
            raise _refusal(ended, config, code)
        content = made.read_bytes()
    _keep(_cache() / card_name(config), content)
    return content


def _install(model: str) -> str:
    named = model or "path/to/config.json"
    return f"`pip install 'tunec[trace]' && tunec card {named}` makes the card"


def _derive(given: Path, made: Path) -> "CompletedProcess[str]":
    """Run the process that makes a card, without network access; it leaves no files behind."""
    import subprocess

    # -P: nothing in the directory of the command stands in for a library
    command = [sys.executable, "-P", "-m", "tunec.compiler.tracing.derivation"]
    offline = {"HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": str(given.parent / "modules")}
    try:
        return subprocess.run(  # noqa: S603  this interpreter, on files of our own
            [*command, str(given), str(made)],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            env={**os.environ, **offline},
        )
    except subprocess.TimeoutExpired:
        raise NoCard(f"its class took more than {SECONDS:.0f} s to follow") from None


def _refusal(
    ended: "CompletedProcess[str]", config: Mapping[str, Any], code: Path | None
) -> NoCard:
    """Why no card was made, from how its process ended."""
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    said = lines[-1] if lines else "it gave no reason"
    if ended.returncode < 0:
        return NoCard(f"the process that makes it was ended by signal {-ended.returncode}")
    if ended.returncode != REFUSED:
        return NoCard(f"its class cannot be followed: {said}")
    if config.get("auto_map") and code is None:
        return NoCard(
            f"{said}; its own code is run only where you trust it",
            help="read the code beside its config.json, then `tunec card --trust-remote-code`",
            at="auto_map",
        )
    return NoCard(said, at="model_type")


def _keep(place: Path, content: bytes) -> None:
    """Write to a temporary file and rename it; a read-only cache is not an error."""
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
    """The config.json of a repository in the local Hugging Face cache.

    For a diffusers pipeline it is the config of the denoiser, which is the part that is trained.
    huggingface_hub 1.0 `constants.py` (`HF_HUB_CACHE`, `HF_HOME`) and `file_download.py`
    (`_get_pointer_path`): `models--OWNER--NAME/refs/main` names the snapshot.
    """
    folder = hub_folder(name)
    try:
        revision = (folder / "refs" / "main").read_text("utf-8").strip()
        return config_in(folder / "snapshots" / revision)
    except (OSError, ValueError):
        return None


def config_in(folder: Path) -> Path | None:
    """The config.json of a model's folder; for a diffusers pipeline, that of the denoiser."""
    places = (folder / part / "config.json" for part in _PARTS)
    return next((each for each in places if each.is_file()), None)


def pipeline_of(folder: Path) -> Path:
    """The folder that holds a denoiser's whole pipeline, which is what its trainer loads.

    Any other folder is itself.
    """
    is_part = folder.name in _PARTS and (folder.parent / _PIPELINE).is_file()
    return folder.parent if is_part else folder


def pipeline_index(config: Path) -> Path | None:
    """The file with the class of the pipeline to which a config.json belongs, if there is one."""
    index = pipeline_of(config.parent) / _PIPELINE
    return index if index.is_file() else None


def with_pipeline_class(config: Mapping[str, Any], index: object) -> Mapping[str, Any]:
    """A denoiser's config with the class of its pipeline, as model_index.json gives it."""
    named = index.get("_class_name") if isinstance(index, Mapping) else None
    return {**config, _PIPELINE_CLASS: named} if isinstance(named, str) else config


def pipeline_class_in(config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The class of the pipeline, empty if it is not known, and the config alone."""
    own = {key: value for key, value in config.items() if key != _PIPELINE_CLASS}
    return str(config.get(_PIPELINE_CLASS, "")), own


def hub_folder(name: str) -> Path:
    """The folder of a repository in the local Hugging Face cache.

    huggingface_hub 2.4.0 constants.py: HF_HUB_CACHE, then HF_HOME, then XDG_CACHE_HOME.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    home = Path(os.environ.get("HF_HOME") or home)
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()
    return hub / f"models--{name.replace('/', '--')}"


_FLOATS: Final = {name: float(name) for name in ("Infinity", "-Infinity", "NaN")}


def decoded(said: Any) -> Any:
    """What a config says, with the floats that JSON does not have.

    transformers 5.0.0 to 5.23.0 configuration_utils.py `_encode_special_floats`: a saved config
    holds infinity as `{"__float__": "Infinity"}`; several models with state spaces have it.
    """
    if isinstance(said, dict):
        if said.keys() == {"__float__"}:
            return _FLOATS.get(str(said["__float__"]), said)
        return {key: decoded(each) for key, each in said.items()}
    return [decoded(each) for each in said] if isinstance(said, list) else said
