"""Rows of data: two of its data set classes are written, the others are only named."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan, training_data
from tunec.compiler.target import Entry, Json, constant, derived, in_every_plan, same
from tunec.schemas.data_paths import chosen, data_name, first_of, is_local, usual_split, with_first
from tunec.targets.chat_template import template_path, template_row
from tunec.targets.nemo_automodel.packages import SOURCE
from tunec.targets.rows import TRAINING_DATA, evaluates, row, training_parts

_SETS: Final = f"{SOURCE} components/datasets/llm"
_CHATS: Final = "nemo_automodel.components.datasets.llm.chat_dataset.ChatDataset"
_COLUMNS: Final = (
    "nemo_automodel.components.datasets.llm.column_mapped_text_instruction_dataset."
    "ColumnMappedTextInstructionDataset"
)
_MAPPING: Final = {"question": "prompt", "answer": "completion"}
_SHARED: Final = "sharegpt"
_ROLES: Final = ("question", "answer", "context")
_TRAIN, _HELD_OUT = "dataset", "validation_dataset"
_PATH, _SPLIT, _CONFIG = "path_or_dataset_id", "split", "name"
_HERE: Final = "./"
_IDS: Final = (_PATH, "path_or_dataset", "dataset_name")
"""Arguments of its data set classes for the location of their data."""
_LENGTH: Final = "dataset.seq_length"
_LOADER: Final = "torchdata.stateful_dataloader.StatefulDataLoader"
_LOADERS: Final = {"dataloader": in_every_plan, "validation_dataloader": evaluates}
_BUILDS: Final = (
    "nemo-automodel 0.5.0 recipes/llm/train_ft.py `build_dataloader`: AttributeError without a "
    "class, and for held-out data without a section; later releases have their own"
)
_COLLATES: Final = "nemo_automodel.components.datasets.utils.default_collater"
_PADS: Final = f"{SOURCE} components/datasets/utils.py"


def _keys(section: str) -> tuple[str, ...]:
    return tuple(f"{section}.{key}" for key in (*_IDS, _SPLIT, _CONFIG))


def _write(
    section: str, names: tuple[str, ...], split: str | None, most: int = 0
) -> Mapping[str, Json]:
    """Files in a list, or one data set of the hub with its part, or the first samples of it."""
    at = f"{section}.{_PATH}"
    if all(map(is_local, names)):
        return {at: names[0] if len(names) == 1 else [*names]}
    if len(names) > 1:
        return {}  # which is refused
    told = chosen(names[0])
    part = {
        f"{section}.{_SPLIT}": with_first(told.split or split, most),
        f"{section}.{_CONFIG}": told.config,
    }
    return {at: told.path, **{key: value for key, value in part.items() if value is not None}}


def _named(section: str, found: Mapping[str, Json], usual: str = "train") -> tuple[str, ...]:
    path = next(filter(None, (found.get(f"{section}.{key}") for key in _IDS)), None)
    if isinstance(path, list):
        return tuple(str(each).removeprefix(_HERE) for each in path)
    config, split = (found.get(f"{section}.{key}") for key in (_CONFIG, _SPLIT))
    if section == _TRAIN and isinstance(path, str) and not is_local(path):
        split, _ = first_of(split)
    if not isinstance(path, str) or "[" in str(split or ""):
        return ()  # a slice of a part is no slot's value
    local = path.removeprefix(_HERE)
    return (local if is_local(path) else data_name(path, config, split, usual),)


def _read_train(found: Mapping[str, Json]) -> Mapping[str, Any]:
    names, (_, most) = _named(_TRAIN, found), first_of(found.get(f"{_TRAIN}.{_SPLIT}"))
    return training_parts([(each, most) for each in names]) if names else {}


def _write_train(plan: Plan) -> Mapping[str, Json]:
    most = plan.data.limits[0] if plan.data.limits else 0
    return _write(_TRAIN, training_data(plan), "train", most)


def _write_held_out(plan: Plan) -> Mapping[str, Json]:
    name = plan.data.evaluation
    if name is None:
        return {}
    trained = training_data(plan)
    held = _write(_HELD_OUT, (name,), usual_split(name, trained))
    train = _write(_TRAIN, trained, "train")
    return {f"{_HELD_OUT}._target_": _class(plan), **held, **train}


def _read_held_out(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The evaluation data; of the training data `test` is the default part."""
    if not any(key.startswith(_HELD_OUT) for key in found):
        return {"data.evaluation": None}
    trained = _named(_TRAIN, found)
    (said,) = _named(_HELD_OUT, found, "") or ("",)
    usual = usual_split(said, trained)
    (name,) = _named(_HELD_OUT, found, usual) or ("",)
    return {"data.evaluation": name} if name else {}


# ── what a record looks like ─────────────────────────────────────────────────────────────────────


def _class(plan: Plan) -> str:
    return _COLUMNS if plan.data.format == "prompt-completion" else _CHATS


def _is_columns(plan: Plan) -> bool:
    return plan.data.format == "prompt-completion"


def _is_chat(plan: Plan) -> bool:
    return not _is_columns(plan)


def _mapping(section: str, plan: Plan) -> Mapping[str, Json]:
    columns = _MAPPING if _is_columns(plan) else {}
    return {f"{section}.column_mapping.{role}": column for role, column in columns.items()}


def _write_format(plan: Plan) -> Mapping[str, Json]:
    told = {f"{_TRAIN}._target_": _class(plan)}
    return (
        {**told, **_mapping(_TRAIN, plan)}
        if plan.data.format in (None, "prompt-completion")
        else {}
    )


def _read_format(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The format: columns named as in TRL's data, or chats; `foreign` names the rest."""
    kind = str(found.get(f"{_TRAIN}._target_", ""))
    if not kind.endswith(".ColumnMappedTextInstructionDataset"):
        return {"data.format": None}
    mapping = {role: found.get(f"{_TRAIN}.column_mapping.{role}") for role in _ROLES}
    is_plain = {key: value for key, value in mapping.items() if value} == _MAPPING
    return {"data.format": "prompt-completion"} if is_plain else {}


def foreign(found: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """Data sets whose texts only its own functions make."""
    for section in (_TRAIN, _HELD_OUT):
        key = f"{section}._target_"
        kind = str(found.get(key, "")).rpartition(".")[2]
        if kind and kind not in ("ChatDataset", "ColumnMappedTextInstructionDataset"):
            yield key, f"its own `{kind}` makes prompts and answers of the data's columns"


_SPLIT_ELSEWHERE: Final = ("mistral", "mistral3", "ministral3", "pixtral")
"""Families whose texts it splits by mistral-common, which has no chat template, and needs files
that few models derived from them have."""


def _tokenizer(section: str, when: Callable[[Plan], bool]) -> Iterator[Entry]:
    """The tokenizer of transformers, where it would take another one."""
    source = f"{SOURCE} _transformers/tokenization/registry.py `_register_default_tokenizers`"
    keys: Mapping[str, Callable[[Plan], Json]] = {
        "pretrained_model_name_or_path": lambda plan: plan.model.path,
        "force_default": lambda _: True,
    }

    def is_other(plan: Plan) -> bool:
        return when(plan) and plan.model.family in _SPLIT_ELSEWHERE

    for key, write in keys.items():
        yield derived(f"{section}.tokenizer.{key}", write, source, when=is_other)


_TEMPLATE: Final = f"{_SETS}/chat_dataset.py `ChatDataset.chat_template`: the text or the path"
DATA: Final[tuple[Entry, ...]] = (
    row(
        (f"{_TRAIN}._target_", *(f"{_TRAIN}.column_mapping.{role}" for role in _ROLES)),
        ("data.format",),
        _write_format,
        _read_format,
        f"{_SETS}/chat_dataset.py, column_mapped_text_instruction_dataset.py",
        when=lambda plan: plan.data.format != _SHARED,
    ),
    constant(
        f"{_TRAIN}._target_",
        _CHATS,
        f"{_SETS}/chat_dataset.py `_conversations_to_messages`: where a record has no messages",
        when=lambda plan: plan.data.format == _SHARED,
    ),
    row(
        _keys(_TRAIN),
        TRAINING_DATA,
        _write_train,
        _read_train,
        f"{_SETS}/chat_dataset.py `_load_openai_messages`: files one behind the other; "
        "`_parse_split_slice`: the first samples of a data set of the hub",
    ),
    row(
        (f"{_HELD_OUT}._target_", *_keys(_HELD_OUT), *_keys(_TRAIN)),
        ("data.evaluation",),
        _write_held_out,
        _read_held_out,
        f"{SOURCE} recipes/_typed_config.py `validation_dataloaders`",
        absent={"data.evaluation": None},
    ),
    template_row(f"{_TRAIN}.chat_template", "nemo-automodel", _TEMPLATE, when=_is_chat),
    derived(
        f"{_HELD_OUT}.chat_template",
        lambda plan: template_path(plan, "nemo-automodel"),
        _TEMPLATE,
        when=lambda plan: evaluates(plan) and _is_chat(plan),
    ),
    same(_LENGTH, "data.sequence", f"{_SETS}/chat_dataset.py `ChatDataset`"),
    derived(f"{_HELD_OUT}.seq_length", lambda plan: plan.data.sequence, f"{_SETS}", when=evaluates),
    *_tokenizer(_TRAIN, in_every_plan),
    *_tokenizer(_HELD_OUT, evaluates),
    constant(f"{_TRAIN}.truncation", True, f"{_SETS}: by default longer ones stay whole"),
    derived(f"{_HELD_OUT}.truncation", lambda _: True, f"{_SETS}", when=evaluates),
    *(
        derived(
            f"{_HELD_OUT}.column_mapping.{role}",
            lambda _, column=column: column,  # type: ignore[misc]
            f"{_SETS}/column_mapped_text_instruction_dataset.py",
            when=lambda plan: evaluates(plan) and _is_columns(plan),
        )
        for role, column in _MAPPING.items()
    ),
    row(
        ("packed_sequence.packed_sequence_size",),
        ("data.packing",),
        lambda plan: {} if plan.data.packing else {"packed_sequence.packed_sequence_size": 0},
        lambda found: {"data.packing": found["packed_sequence.packed_sequence_size"] > 0},
        f"{SOURCE} recipes/_typed_config.py `_packing_config`",
        absent={"data.packing": False},
    ),
    *(
        constant(f"{name}._target_", _LOADER, _BUILDS, until="0.6", when=when)
        for name, when in _LOADERS.items()
    ),
    constant("dataloader.shuffle", True, f"{SOURCE} recipes/_typed_config.py"),
    constant("dataloader.collate_fn", _COLLATES, f"{_PADS}: padded to the longest of a batch"),
    constant("validation_dataloader.collate_fn", _COLLATES, _PADS, until="0.6", when=evaluates),
    same(
        "dataloader.num_workers",
        "runtime.dataloader_workers",
        f"{SOURCE} recipes/_typed_config.py",
        default=0,
    ),
    same(
        "dataloader.pin_memory",
        "runtime.dataloader_pin_memory",
        f"{SOURCE} recipes/_typed_config.py",
        default=False,
    ),
)
