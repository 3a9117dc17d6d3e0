"""How `datasets` reads a data set card and the files that the card names."""

from collections.abc import Mapping, Sequence
from contextlib import chdir
from pathlib import Path, PurePosixPath
from typing import Any, Final

from datasets import __version__, load_dataset_builder

from tunec.compiler.consumers.refusal import Refused, stage
from tunec.compiler.consumers.workplace import workplace

_SAMPLE: Final = "sample.jsonl"
"""The file in a directory of data; only its name matters."""


def card(question: Mapping[str, Any]) -> dict[str, Any]:
    """Pass a card to `load_dataset_builder`, beside empty files where the plan has its data.

    In: `folder`, the card's directory relative to the working directory, and `text`, the card;
    `paths` of the plan's files and directories, relative to the working directory; a directory ends
    in a slash. Out: `version`; `refused` (None, or stage, type and message); `splits`, the paths of
    each split in order, as the plan has them or, for other files, as they are found.
    """
    answer: dict[str, Any] = {"version": __version__, "refused": None, "splits": {}}
    depth = max((PurePosixPath(each).parts.count("..") for each in question["paths"]), default=0)
    root = "/".join(["inner"] * depth) or "."
    place = f"{root}/{question['folder']}"
    with workplace({f"{place}/README.md": question["text"]}), chdir(root):
        laid = _laid(question["paths"])
        try:
            with stage("load"):
                builder = load_dataset_builder(question["folder"], cache_dir="cache")
        except Refused as refused:
            return {**answer, "refused": {**refused.told(), "message": _brief(refused)}}
        found = builder.config.data_files or {}
        splits = {str(split): [_known(path, laid) for path in found[split]] for split in found}
        return {**answer, "splits": splits}


def _brief(refused: Refused) -> str:
    """The message, without the working directory and the hundred supported suffixes."""
    text = str(refused).partition(" with any supported extension")[0]
    return text.replace(f"{Path.cwd().as_posix()}/", "")


def _laid(paths: Sequence[str]) -> dict[str, str]:
    """Create empty files for a plan's data; return the plan's path for each file."""
    found: dict[str, str] = {}
    for each in paths:
        path = Path(each, _SAMPLE) if each.endswith("/") else Path(each)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        found[path.resolve().as_posix()] = each
    return found


def _known(path: str, laid: Mapping[str, str]) -> str:
    return laid.get(Path(path).resolve().as_posix(), path)
