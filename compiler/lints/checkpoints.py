"""What the files of a checkpoint's folder say of the run that wrote it: by their names alone."""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from tunec.compiler.frontend.nodes import Node
from tunec.compiler.lints.document import Document
from tunec.schemas.source import Span

_LONGEST: Final = 500
"""Characters of a path."""
_MOST: Final = 100_000
"""Names that are looked at in one folder."""
_STATES: Final = re.compile(r"(?:bf16_|fp16_)?zero_pp_rank_(\d+)_mp_rank_\d+_optim_states\.pt")
_PARTS: Final = re.compile(r"zero_pp_rank_\d+_mp_rank_\d+_model_states\.pt")
_RANDOM: Final = re.compile(r"rng_state(?:_(\d+))?\.pth")
"""deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_get_rank_zero_ckpt_name`, `_get_ckpt_name`;
transformers 4.40.2 to 5.23.0 trainer.py `_save_rng_state`."""


def checkpoints(
    document: Document, near: Callable[[Path], Iterable[Path]]
) -> Iterator[tuple[Path, Node]]:
    """The folder that a trainer's file says training is to go on from, if one is there.

    `near` gives the places where a path of that file may lie.
    """
    said, output = (document.value(key) for key in ("resume_from_checkpoint", "output_dir"))
    wanted = output if said is True else said
    if not isinstance(wanted, str) or not 0 < len(wanted) < _LONGEST:
        return
    for each in near(Path(wanted)):
        folder = last_of(each) if said is True else each
        node = None if folder is None else checkpoint_node(folder)
        if folder is not None and node is not None:
            yield folder, node
            return


def last_of(folder: Path) -> Path | None:
    """The newest checkpoint in an output directory, as the trainer takes it for `true`."""
    found = {int(name[11:]): name for name in _names(folder) if re.match(r"checkpoint-\d+$", name)}
    return folder / found[max(found)] if found else None


def checkpoint_node(folder: Path) -> Node | None:
    """`engine`, `processes` and `sharded` of a checkpoint; None for a folder that is none."""
    names = _names(folder)
    tags = sorted(name for name in names if name.startswith("global_step"))
    inner = _names(folder / _tag(folder, tags)) if tags else []
    states = [int(found[1]) for each in inner if (found := _STATES.fullmatch(each))]
    ranks = [int(found[1] or 0) for each in names if (found := _RANDOM.fullmatch(each))]
    if not states and not ranks:
        return None
    engine = "deepspeed" if states else "none"
    told = {
        "engine": engine,
        "processes": 1 + max(states or ranks),
        "sharded": any(_PARTS.fullmatch(each) for each in inner),
    }
    at = Span(str(folder), 1, 1, 1, 1)
    return Node(
        at, fields={key: Node(at, value, is_inline_json=True) for key, value in told.items()}
    )


def _tag(folder: Path, tags: list[str]) -> str:
    """The folder that is loaded: the one that `latest` names."""
    try:
        named = (folder / "latest").read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        named = ""
    return named if named in tags else tags[-1]


def _names(folder: Path) -> list[str]:
    try:
        every: Iterable[Path] = folder.iterdir()
        return sorted(each.name for _, each in zip(range(_MOST), every, strict=False))
    except OSError:
        return []
