"""Rows of Axolotl's YAML for the data sets, and for how samples are built from them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.diagnostics.wording import shown
from tunec.compiler.ir.plan import Plan, limited_data, training_data
from tunec.compiler.target import Json, constant, derived
from tunec.schemas.data_paths import (
    FORMATS,
    Record,
    builder_of,
    chosen,
    data_kind,
    data_name,
    usual_split,
    with_first,
)
from tunec.schemas.terms import DataFormat
from tunec.targets.axolotl.adapter import REWARDS_TEXTS
from tunec.targets.axolotl.packages import WRITTEN
from tunec.targets.chat_template import template_named, template_path
from tunec.targets.rows import (
    TRAINING_DATA,
    has_images,
    is_of_pairs,
    is_rewarded,
    is_supervised,
    length,
    loaded_parts,
    row,
    scores_texts,
)
from tunec.targets.scripts.trl_rewards import rewarded_record

_CONFIG: Final = "axolotl 0.8.1 to 0.19.0 utils/schemas/config.py `AxolotlInputConfig`"
_COLLATORS: Final = "axolotl 0.13.2 to 0.19.0 core/builders/causal.py `build_collator`"


# ── where the data is ────────────────────────────────────────────────────────────────────────────


_TYPES: Final[Mapping[DataFormat | None, Mapping[str, Json]]] = {
    None: {"type": "chat_template"},
    "sharegpt": {
        "type": "chat_template",
        "field_messages": "conversations",
        "message_property_mappings": {"role": "from", "content": "value"},
    },
    "alpaca": {"type": "alpaca"},
    "prompt-completion": {
        "type": {
            "field_instruction": "prompt",
            "field_output": "completion",
            "format": "{instruction}",
            "no_input_format": "{instruction}",
        }
    },
    "text": {"type": "completion", "field": "text"},
}
"""How prompts are built for each record format (axolotl 0.13.2 to 0.19.0 prompt_strategies:
chat_template.py `ChatTemplatePrompter`, user_defined.py, completion.py; utils/data/wrappers.py)."""
_USUAL: Final[Mapping[str, Json]] = {
    "field_messages": "messages",
    "message_property_mappings": {"role": "role", "content": "content"},
    "field": "text",
}
"""The defaults of these keys. `ds_type` follows from a file's suffix: axolotl 0.8.1 to 0.19.0
utils/data/shared.py `get_dataset_type`."""
_WHERE: Final = frozenset({"path", "name", "split"})


_OF_PAIRS: Final = {"dpo": "chat_template.argilla_chat", "reward": "bradley_terry.chat_template"}
"""How pairs of answers are read, by objective: axolotl 0.13.2 to 0.19.0 prompt_strategies/dpo,
bradley_terry; utils/data/wrappers.py `_handle_bradley_terry_dataset`."""


def _type(plan: Plan) -> Mapping[str, Json]:
    """How prompts are built: by the data's format, or from `chosen` and `rejected` answers.

    TRL's trainers read such conversations too, as DPO does here. Without a type, prompts that are
    answered go to TRL unchanged: utils/data/rl.py `_load_split`.
    """
    if is_rewarded(plan):
        return {}
    if is_supervised(plan):
        return _TYPES[plan.data.format]
    return {"type": _OF_PAIRS["reward" if scores_texts(plan) else "dpo"]}


def _said_of_records(part: Mapping[str, Any]) -> Mapping[str, Json]:
    """A data set's keys about its records, without keys that hold their default."""
    usual = {**_USUAL, "ds_type": builder_of(str(part.get("path")))}
    said = {key: each for key, each in part.items() if key not in _WHERE and each is not None}
    return {key: each for key, each in said.items() if usual.get(key) != each}


def _formats(found: Mapping[str, Json]) -> list[DataFormat | None] | None:
    """The format of each data set; None if one of them is read in a way that has no name."""
    parts = [*(found.get("datasets") or ()), *(found.get("test_datasets") or ())]
    if not all(isinstance(each, dict) for each in parts):
        return None
    kinds = {repr(_said_of_records(each)): name for name, each in _TYPES.items()}
    said = [repr(_said_of_records(each)) for each in parts]
    return [kinds[each] for each in said] if all(each in kinds for each in said) else None


def _read_format(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The format that all data sets share; no slot stands for several formats or another one."""
    every = set(_formats(found) or ())
    return {"data.format": every.pop()} if len(every) == 1 else {}


def records(plan: Plan) -> tuple[Record, ...]:
    """The records that Axolotl reads: axolotl 0.13.2 to 0.19.0 `get_conversation_thread`.

    It is in prompt_strategies/chat_template.py. For pairs, prompt_strategies/dpo/chat_template.py
    `argilla_chat` reads whole conversations, and no `prompt` beside them. For reward models
    prompt_strategies/bradley_terry/chat_template.py `BTChatTemplateStrategy` reads texts.
    """
    if is_rewarded(plan):
        return (rewarded_record(plan),)
    if plan.data.format == "prompt-completion":
        return (Record(("prompt", "completion"), "text"),)  # prompt_strategies/user_defined.py
    if is_supervised(plan):
        return (FORMATS[plan.data.format or "messages"],)
    if scores_texts(plan):
        return (Record(("system", "input", "chosen", "rejected"), "text"),)
    return (Record(("chosen", "rejected"), "dialogue"),)


def _part(plan: Plan, path: str, split: str, most: int = 0) -> Mapping[str, Json]:
    """The entry of one data set. A file has a single split, `train`, whatever its purpose."""
    said = chosen(path)
    split = said.split or (split if data_kind(path) in ("name", "directory") else "train")
    name = {} if said.config is None else {"name": said.config}
    return {"path": said.path, **name, "split": with_first(split, most), **_type(plan)}


def _named(part: Mapping[str, Any], usual: str = "train") -> str:
    return data_name(part["path"], part.get("name"), part.get("split"), usual)


def _write_data(plan: Plan) -> Mapping[str, Json]:
    parts = limited_data(plan)
    return {"datasets": [_part(plan, path, "train", most) for path, most in parts]}


def _read_data(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The data sets, which Axolotl concatenates; no slot stands for mixing them by share."""
    parts = found["datasets"]
    if not isinstance(parts, list) or any(not isinstance(each, dict) for each in parts):
        return {}
    return loaded_parts((each["path"], each.get("name"), each.get("split")) for each in parts)


def write_evaluation(plan: Plan) -> Mapping[str, Json]:
    """The evaluation data: another split if it is in the training data."""
    path = plan.data.evaluation
    if path is None:
        return {"val_set_size": 0.0}
    split = usual_split(path, training_data(plan))
    tested = {"test_datasets": [_part(plan, path, split)], "val_set_size": 0.0}
    return {**_write_data(plan), **tested}


def _read_evaluation(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The separate evaluation data set; no slot stands for a share of the training data."""
    parts = found.get("test_datasets")
    if parts:
        trained = [_named(each) for each in found.get("datasets") or ()]
        usual = usual_split(_named(parts[0]), trained)
        return {"data.evaluation": _named(parts[0], usual)} if len(parts) == 1 else {}
    return {} if found.get("val_set_size") else {"data.evaluation": None}


def _taken(found: Mapping[str, Json]) -> str:
    """What other trainers of the same objective read."""
    if found.get("rl") == "grpo":
        return "prompts"
    if found.get("rl") is not None or found.get(REWARDS_TEXTS):
        return "conversations, `chosen` and `rejected`"
    return "messages, prompts with completions, or text"


def forms(found: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """How prompts are built from the data's columns, which no other program does."""
    taken = _taken(found)
    for key in ("datasets", "test_datasets"):
        for part in found.get(key) or ():
            rest = {name: each for name, each in part.items() if name not in _WHERE and each}
            if rest and _formats({key: [part]}) is None:
                said = ", ".join(f"{name} {shown(each)}" for name, each in rest.items())
                yield (
                    key,
                    f"axolotl reads {part.get('path')} by {said}: other trainers take {taken}",
                )


# ── what is made of it ───────────────────────────────────────────────────────────────────────────


_IMAGES: Final = (
    constant("processor_type", "AutoProcessor", f"{_COLLATORS}: images need one", when=has_images),
    constant(
        "skip_prepare_dataset",
        True,
        f"{_COLLATORS} `MultiModalChatDataCollator`: it makes samples itself",
        when=has_images,
    ),
    constant("remove_unused_columns", False, f"{_COLLATORS}: it needs messages", when=has_images),
)


def _write_template(plan: Plan) -> Mapping[str, Json]:
    path = template_path(plan, "axolotl")
    if path is None:
        return {"chat_template": OF_TOKENIZER}
    return {"chat_template": "jinja", "chat_template_jinja": path}


def _read_template(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The template: the tokenizer's, or a file; Axolotl's own templates have no slot."""
    if found.get("chat_template", OF_TOKENIZER) == OF_TOKENIZER:
        return {"data.chat_template": None}
    return template_named(found.get("chat_template_jinja"), "axolotl")


CUTS_PAIRS: Final = "0.17"
"""The first release that can cut pairs that are too long; earlier ones drop them: utils/data/rl.py
`_drop_long_sequences`."""
OF_TOKENIZER: Final = "tokenizer_default"
"""The word for the template of the tokenizer, and the default."""
_SAMPLES: Final = (
    *length("sequence_len", 512, _CONFIG, _CONFIG),
    row(
        ("sample_packing",),
        ("data.packing",),
        lambda plan: {"sample_packing": plan.data.packing},
        lambda found: {"data.packing": bool(found["sample_packing"])},
        _CONFIG,
        absent={"data.packing": False},
    ),
    derived(
        "eval_sample_packing",
        lambda plan: plan.data.packing,
        "axolotl 0.13.2 to 0.19.0 utils/schemas/validation.py `check_eval_packing`: absent, on",
        since=WRITTEN,
    ),
    derived(
        "pad_to_sequence_len",
        lambda plan: plan.data.packing,
        "axolotl 0.13.2 to 0.19.0 utils/schemas/validation.py `hint_sample_packing_padding`",
        since=WRITTEN,
    ),
    constant(
        "excess_length_strategy",
        "truncate",
        "axolotl 0.13.2 to 0.19.0 utils/data/utils.py: absent, long samples are dropped",
        since=WRITTEN,
        when=is_supervised,
    ),
    constant(
        "excess_length_strategy",
        "truncate",
        "axolotl 0.17.0 to 0.19.0 utils/data/rl.py `_load_split`: absent, long pairs are dropped",
        since=CUTS_PAIRS,
        when=is_of_pairs,
    ),
    row(
        ("chat_template", "chat_template_jinja"),
        ("data.chat_template",),
        _write_template,
        _read_template,
        "axolotl 0.13.2 to 0.19.0 utils/chat_templates/base.py `get_chat_template`: the text or "
        "the path of a template",
        absent={"data.chat_template": None},
        yields=True,
    ),
)

DATA: Final = (
    row(
        ("datasets",),
        TRAINING_DATA,
        _write_data,
        _read_data,
        f"{_CONFIG}; utils/schemas/datasets.py; utils/data/shared.py `merge_datasets`",
        yields=True,
    ),
    row(
        ("test_datasets", "val_set_size", "datasets"),
        ("data.evaluation",),
        write_evaluation,
        _read_evaluation,
        f"{_CONFIG}; utils/data/sft.py",
        absent={"data.evaluation": None},
        yields=True,
    ),
    row(
        ("datasets", "test_datasets"),
        ("data.format",),
        _write_data,
        _read_format,
        f"{_CONFIG}; utils/schemas/datasets.py `SFTDataset`",
        when=is_supervised,
        yields=True,
    ),
    *_SAMPLES,
    *_IMAGES,
)
