"""Rows of torchtune's data sets: a builder, and its arguments."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.consumers.moved_keys import Carry
from tunec.compiler.target import Json
from tunec.targets.read_only import as_it_is, observed
from tunec.targets.rows import TRAINING_DATA, loaded_parts
from tunec.targets.torchtune.packages import SOURCE

Found = Mapping[str, Json]
Values = Mapping[str, Any]
_BUILDERS: Final = f"{SOURCE} torchtune/datasets"
_SOURCES: Final = {
    "alpaca_dataset": "tatsu-lab/alpaca",
    "alpaca_cleaned_dataset": "yahma/alpaca-cleaned",
    "grammar_dataset": "liweili/c4_200m",
    "samsum_dataset": "Samsung/samsum",
    "slimorca_dataset": "Open-Orca/SlimOrca-Dedup",
    "stack_exchange_paired_dataset": "lvwerra/stack-exchange-paired",
    "hh_rlhf_helpful_dataset": "RLHFlow/HH-RLHF-Helpful-standard",
    "cnn_dailymail_articles_dataset": "ccdv/cnn_dailymail",
    "wikitext_dataset": "EleutherAI/wikitext_document_level",
}
"""The data set that a builder reads by default: its argument `source`."""
_FILES: Final = ("json", "csv", "parquet", "arrow", "text")
_COLUMNS: Final = "messages, prompts with completions, or text"
_TAKEN: Final = ("_component_", "source", "data_files", "packed", "split")


def parts(found: Found, name: str = "dataset") -> tuple[dict[str, Json], ...]:
    """The builder and arguments of each data set; those of a list are joined."""
    if isinstance(found.get(name), list):
        return tuple(each for each in found[name] if isinstance(each, dict))
    keys = [key for key in found if key.startswith(f"{name}.")]
    said = {key.removeprefix(f"{name}."): found[key] for key in keys}
    return (said,) if said else ()


def path_of(part: Mapping[str, Json]) -> str | None:
    """The data set on the hub, or the file, that a builder reads."""
    kind = str(part.get("_component_", "")).rpartition(".")[2]
    source = part.get("source", _SOURCES.get(kind))
    files = part.get("data_files")
    if source in _FILES:
        return files if isinstance(files, str) else None
    return source if isinstance(source, str) else None


def _train(found: Found) -> Values:
    named = [(path_of(each), None, each.get("split")) for each in parts(found)]
    known = [(path, config, split) for path, config, split in named if path is not None]
    return loaded_parts(known) if len(known) == len(named) else {}


def _evaluated(found: Found) -> Values:
    """The evaluation: none without steps; a part of the training data has no slot value."""
    steps, held = found.get("run_val_every_n_steps"), parts(found, "dataset_val")
    if not steps:
        return {"data.evaluation": None, "schedule.evaluation_steps": None}
    paths = [path_of(each) for each in held]
    if len(paths) != 1 or paths[0] is None:
        return {}
    is_part = paths[0] == path_of(next(iter(parts(found)), {}))
    known = {} if is_part else {"data.evaluation": paths[0]}
    return {"schedule.evaluation_steps": steps, **known}


def _packed(found: Found) -> Values:
    return {"data.packing": any(each.get("packed") is True for each in parts(found))}


def forms(found: Found) -> Iterator[tuple[str, str]]:
    """How a builder makes samples of its columns, which no other program does."""
    at = "dataset" if isinstance(found.get("dataset"), list) else "dataset._component_"
    for each in parts(found):
        kind = str(each.get("_component_", "")).rpartition(".")[2]
        told = ", ".join(f"{key} {value}" for key, value in each.items() if key not in _TAKEN)
        made = f"{kind} makes samples of {path_of(each)} by a template of its own"
        yield at, f"{made}{f' ({told})' if told else ''}: other trainers take {_COLUMNS}"


def _split(part: Mapping[str, Json]) -> dict[str, Json]:
    """A data set as arguments of `load_dataset`, under TRL's keys."""
    source, files = part.get("source"), part.get("data_files")
    held = {"path": source, "data_files": files} if files else {"path": path_of(part)}
    return {**held, "split": part.get("split", "train")}


def _splits(found: Found) -> Values:
    """The data sets, if one is a part; rows read those that are used whole."""
    every = [_split(each) for each in parts(found)]
    is_known = all(isinstance(each["path"], str) for each in every)
    is_whole = all(each["split"] == "train" for each in every)
    return {} if is_whole or not is_known else {"datasets": every}


def _length(found: Found) -> Values:
    """Null: samples are not cut."""
    return {"max_length": None} if found["tokenizer.max_seq_len"] is None else {}


def _compiled(found: Found) -> Values:
    return {"torch_compile": True} if found["compile"] is True else {}


_OF_SETS: Final = ("dataset", *(f"dataset.{key}" for key in (*_TAKEN, "train_on_input")))
_OF_EVALUATION: Final = tuple(f"dataset_val.{key}" for key in _TAKEN)
DATA: Final = (
    observed(_OF_SETS, TRAINING_DATA, _train, _BUILDERS),
    observed(_OF_SETS, ("data.packing",), _packed, _BUILDERS),
    observed(
        ("run_val_every_n_steps", *_OF_EVALUATION, *_OF_SETS),
        ("data.evaluation", "schedule.evaluation_steps"),
        _evaluated,
        f"{SOURCE} recipes/full_finetune_distributed.py `setup`",
        absent={"data.evaluation": None, "schedule.evaluation_steps": None},
    ),
    as_it_is(
        "tokenizer.max_seq_len",
        "data.sequence",
        f"{SOURCE} torchtune/modules/transforms/tokenizers/_utils.py `truncate`",
    ),
)
CARRIES: Final = (
    Carry(
        _OF_SETS,
        _splits,
        f"{_BUILDERS}: `load_dataset`; trl 0.22.0 to 1.16.0 scripts/utils.py "
        "`DatasetMixtureConfig`",
        slots=TRAINING_DATA,
    ),
    Carry(
        ("tokenizer.max_seq_len",),
        _length,
        f"{SOURCE} torchtune/modules/transforms/tokenizers/_utils.py `truncate`; trl 0.16.0 to "
        "1.16.0 trainer/sft_config.py",
        slots=("data.sequence",),
    ),
    Carry(
        ("compile",),
        _compiled,
        f"{SOURCE} torchtune/training/_compile.py; transformers training_args.py `torch_compile`",
    ),
)
"""The keys of TRL's file that hold them, besides slots."""
