"""Keys of the alignment handbook's scripts: TRL's, with data and templates of their own."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tunec.compiler.consumers.moved_keys import Carry, Moved, gone, only_here
from tunec.compiler.target import Json
from tunec.targets.chat_template import NAME
from tunec.targets.rows import TRAINING_DATA

_CONFIGS: Final = "huggingface/alignment-handbook after v0.3.0 src/alignment/configs.py"
_DATA: Final = "huggingface/alignment-handbook after v0.3.0 src/alignment/data.py `get_dataset`"
_MIXTURE: Final = "trl 0.22.0 to 1.16.0 scripts/utils.py `DatasetMixtureConfig`"
_PARTS: Final = "dataset_mixture.datasets"
_SPLIT: Final = "dataset_mixture.test_split_size"
_SEED: Final = "dataset_mixture.seed"
_KNOWN: Final = frozenset({"id", "config", "split", "columns", "weight"})


def _part(said: Mapping[str, Any]) -> dict[str, Json]:
    """A data set as TRL loads it, of a share the first. Raises ValueError if it says more."""
    split, weight = said.get("split") or "train", said.get("weight")
    is_cut = "[" in split or "+" in split
    if said.keys() - _KNOWN or "id" not in said:
        raise ValueError(said)
    if weight not in (None, 1):
        if is_cut or not isinstance(weight, float):
            raise ValueError(said)
        split = f"{split}[:{weight * 100:g}%]"
    told = {
        "path": said["id"],
        "name": said.get("config"),
        "split": split,
        "columns": said.get("columns"),
    }
    return {key: each for key, each in told.items() if each is not None}


def _mixed(found: Mapping[str, Json]) -> Mapping[str, Json]:
    parts = found.get(_PARTS)
    if not isinstance(parts, list) or not parts:
        return {}
    held_out = found.get(_SPLIT)
    every: Json = [_part(each) for each in parts]
    return {"datasets": every, **({"test_split_size": held_out} if held_out else {})}


def _drawn(found: Mapping[str, Json]) -> str:
    """What TRL draws in another way."""
    parts: Sequence[Any] = found.get(_PARTS) or ()
    shares = [each for each in parts if each.get("weight") not in (None, 1)]
    first = ["shares of data sets are their first samples"] if shares else []
    other = ["other samples are held out"] if found.get(_SPLIT) else []
    told = ", and ".join((*first, *other))
    return f"the handbook draws samples by `dataset_mixture.seed`: by trl {told}" if told else ""


def _named(found: Mapping[str, Json]) -> Mapping[str, Json]:
    return {"chat_template_path": f"trl/{NAME}"} if found["chat_template"] else {}


CARRIES: Final = (
    Carry(
        (_PARTS, _SPLIT, _SEED),
        _mixed,
        f"{_CONFIGS} `DatasetConfig`; {_DATA}; {_MIXTURE}",
        slots=(*TRAINING_DATA, "data.evaluation"),
        apart=_drawn,
    ),
    Carry(
        ("chat_template",),
        _named,
        f"{_CONFIGS} `SFTConfig`; trl 0.19.1 to 1.16.0 trainer/sft_trainer.py",
        slots=("data.chat_template",),
        texts=lambda found: {NAME: str(found["chat_template"])},
    ),
)
LEAVES: Final[tuple[Moved, ...]] = (
    only_here(_PARTS, _DATA, "TRL has no key for a share of a split that is cut or joined already"),
    gone(
        "max_prompt_length",
        "trl 0.29.0 trainer/dpo_config.py",
        "since trl 0.29 `max_length` bounds a prompt with its answers, and nothing a prompt alone",
        changes_nothing=lambda value: value is None,
    ),
    gone(
        "hub_model_revision",
        f"{_CONFIGS}; src/alignment/release.py",
        "the model is uploaded to the main branch, if it is",
    ),
)
"""What happens without these keys, which TRL does not have."""
