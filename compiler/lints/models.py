"""What is known of the model that files name: its own config at hand, or the catalogue's."""

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tunec.compiler.lints.neighbours import contents
from tunec.schemas.frozen import replace

if TYPE_CHECKING:
    from tunec.compiler.facts import ResolvedModel

UNKNOWN: Final = "this model is not known"
"""The message where neither is there."""
_CONFIG: Final = "config.json"
_LONGEST: Final = 500
"""Characters of a name that may be a path."""


def model_at_hand(files: Iterable[Path]) -> "Callable[[str], ResolvedModel | None]":
    """How models are found that files on disk name.

    A folder with a config.json is that model, wherever the run looks for it: beside the files,
    above them, or where the command runs. A name of the Hub is the catalogue's model; where that
    has none, the config.json beside the files speaks of it.
    """
    return partial(_model, tuple(files))


def _model(files: tuple[Path, ...], name: str) -> "ResolvedModel | None":
    found = next(_in_folder(files, name), None) or catalogue_model(name)
    return found or next(_beside(files, name), None)


def _in_folder(files: tuple[Path, ...], name: str) -> "Iterator[ResolvedModel]":
    """The model whose folder has that name."""
    if len(name) > _LONGEST or "\0" in name:
        return
    for file in {file.parent: file for file in files}.values():
        for path, content in contents(Path(name) / _CONFIG, file):
            yield from _derived(name, path, _config(content))


def _beside(files: tuple[Path, ...], name: str) -> "Iterator[ResolvedModel]":
    """The model of a config.json in the folder of a file, unless that says it is another's."""
    for folder in dict.fromkeys(file.parent for file in files):
        for path, content in contents((folder / _CONFIG).resolve(), folder):
            config = _config(content)
            own = str(config.get("_name_or_path") or name)
            if _last(own) == _last(name):
                yield from _derived(name, path, config)


def _config(content: bytes) -> dict[str, Any]:
    """A model's config; empty: the file is none, as SimpleTuner's of the same name."""
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    is_config = isinstance(found, dict) and {"architectures", "_class_name"} & found.keys()
    return found if is_config else {}


def _derived(name: str, path: Path, config: dict[str, Any]) -> "Iterator[ResolvedModel]":
    """The model of a config; none where no rule derives its architecture."""
    if not config:
        return
    from tunec.compiler.resolve import Unresolved, resolve_model

    try:
        yield replace(resolve_model(str(path.resolve()), Path()), path=name)
    except (Unresolved, LookupError, ValueError, OSError):
        return


def _last(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2].lower()


def catalogue_model(name: str) -> "ResolvedModel | None":
    """What the catalogue knows of a repository or catalogue name; None where that is nothing.

    A folder, or another's copy, has the modules of the model that is called as its last part is.
    """
    from tunec.compiler.resolve import catalogued

    last = name.rstrip("/").rpartition("/")[2]
    for each in dict.fromkeys((name, last)):
        try:
            found = catalogued(each)
            return found if each == name else replace(found, path=name)
        except (LookupError, ValueError, OSError):
            continue
    return None
