"""finetune.yaml, the file that `FinetuningConfig.from_file` of the scripts reads."""

from typing import Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, File, Json, constant, derived, fixed, named, same
from tunec.schemas.frozen import replace
from tunec.targets.glm4.versions import COMBINED, TODAY, schema
from tunec.targets.huggingface.adapter import ADAPTER_CONFIG
from tunec.targets.huggingface.packages import PEFT, schema_of
from tunec.targets.huggingface.predictions import writes_answers
from tunec.targets.huggingface.target import TRAINING_ARGS
from tunec.targets.rows import evaluates, has_adapter, unlimited
from tunec.targets.scripts.file import below, checked, every, without

NAME: Final = "finetune.yaml"
_SCRIPTS: Final = "zai-org/GLM-4 da2fe37, f6ee34e and 3f79b54, finetune.py and finetune_vision.py"
_CONFIG: Final = f"{_SCRIPTS} `FinetuningConfig`"


def reads_images(plan: Plan) -> bool:
    """Whether finetune_vision.py runs instead of finetune.py."""
    return plan.model.kind == "vision-language"


def reads_text(plan: Plan) -> bool:
    """Whether finetune.py runs."""
    return not reads_images(plan)


# ── data and lengths ─────────────────────────────────────────────────────────────────────────────

_DATA: Final = (
    unlimited(f"{_SCRIPTS} `_load_datasets`: all of a file is read"),
    same(
        "data_config.train_file",
        "data.train",
        f"{_SCRIPTS} `DataConfig`; below DATA_DIR, which the command gives",
    ),
    same("data_config.val_file", "data.evaluation", f"{_SCRIPTS} `DataConfig`", default=None),
    fixed("data.packing", value=False, source=f"{_SCRIPTS} `process_batch`: a sample a row"),
)


_LENGTHS: Final = ("max_input_length", "max_output_length")


def _halves(plan: Plan) -> tuple[int, int]:
    """The most tokens of question and answer; by default each gets half of the sample."""
    both = plan.data.sequence
    if writes_answers(plan):
        return both - plan.evaluation.completion, plan.evaluation.completion
    return both - both // 2, both // 2


_LENGTH: Final = Entry(
    _LENGTHS,
    ("data.sequence",),
    lambda plan: dict(zip(_LENGTHS, _halves(plan), strict=True)),
    lambda found: {"data.sequence": sum(found[key] for key in _LENGTHS)},
    f"{_SCRIPTS} `process_batch`: a sample is cut at the sum; finetune.py adds the end of the "
    "answer, images are counted by neither",
)


# ── what is trained ──────────────────────────────────────────────────────────────────────────────


def _trains_whole_images(plan: Plan) -> bool:
    return reads_images(plan) and not has_adapter(plan)


def _freezes_otherwise(plan: Plan) -> bool:
    return not _trains_whole_images(plan)


_PARTS: Final = (
    constant("combine", value=True, source=f"{_CONFIG}, required; shipped so", since=COMBINED),
    named(
        "freezeV",
        "adapter.frozen",
        {("vision",): True, (): False},
        f"{_CONFIG}, required; freezes model.transformer.vision",
        since=COMBINED,
        when=_trains_whole_images,
    ),
    replace(
        constant(
            "freezeV",
            value=False,
            source=f"{_CONFIG}, required; with adapters it would also freeze those of the tower",
            since=COMBINED,
            when=_freezes_otherwise,
        ),
        slots=("adapter.frozen",),
        read=lambda found: {} if found["freezeV"] else {"adapter.frozen": ()},
    ),
    fixed("adapter.frozen", (), f"{_CONFIG}: no key freezes anything", until=COMBINED),
)


# ── arguments of the Trainer ─────────────────────────────────────────────────────────────────────

_GENERATES: Final = f"{_SCRIPTS} `prediction_step`: without it output_ids has no value"
_ANSWERS: Final = f"{_CONFIG} `from_dict`: GenerationConfig(**gen_config), so it must be there"


def _evaluates_nothing(plan: Plan) -> bool:
    return not evaluates(plan)


_OWN: Final = (
    *("remove_unused_columns", "activation_checkpointing.mode", "fsdp"),
    *("evaluation.predictions", "generation_max_length"),
)
_TRAINER: Final = without(TRAINING_ARGS.entries, *_OWN)
_MODE, _MODE_RENAMED = (
    each
    for each in without(TRAINING_ARGS.entries, "fsdp")
    if "activation_checkpointing.mode" in each.slots
)
_ALWAYS_RECOMPUTES: Final = replace(
    _MODE,
    until=TODAY,
    source=f"{_SCRIPTS} `main` until 2024-12: model.gradient_checkpointing_enable(), by default",
    read=lambda _: {"activation_checkpointing.mode": "layer"},
    absent=((ALWAYS, {"activation_checkpointing.mode": "layer"}),),
)
_ARGUMENTS: Final = tuple(
    below("training_args", each)
    for each in (
        *_TRAINER,
        _ALWAYS_RECOMPUTES,
        replace(_MODE, since=TODAY),
        _MODE_RENAMED,
        constant(
            "remove_unused_columns",
            value=False,
            source=f"{_SCRIPTS} `process_batch_eval`: forward() does not name output_ids",
        ),
        constant("predict_with_generate", value=True, source=_GENERATES, when=_evaluates_nothing),
        Entry(
            ("predict_with_generate",),
            ("evaluation.predictions",),
            lambda _: {"predict_with_generate": True},
            lambda found: (
                {"evaluation.predictions": "answers"} if found["predict_with_generate"] else {}
            ),
            _GENERATES,
            when=evaluates,
        ),
        derived(
            "generation_config.max_new_tokens",
            lambda plan: max(1, _halves(plan)[1]),
            _ANSWERS,
            when=_evaluates_nothing,
        ),
        same("generation_config.max_new_tokens", "evaluation.completion", _ANSWERS, when=evaluates),
    )
)


# ── adapter and model ────────────────────────────────────────────────────────────────────────────


def _in_block(entry: Entry) -> Entry:
    """A row of adapter_config.json in the block `peft_config`, which only adapters have."""
    return replace(below("peft_config", entry), when=has_adapter)


_ADAPTER: Final = (
    named(
        "peft_config.peft_type",
        "adapter.kind",
        {"lora": "LORA"},
        f"{_CONFIG} `from_dict`: peft.get_peft_config; without the block the model is trained",
        default="none",
    ),
    *(
        _in_block(each)
        for each in without(ADAPTER_CONFIG.entries, "base_model_name_or_path", "peft_type")
    ),
)
_LOADED: Final = f"{_SCRIPTS} `load_tokenizer_and_model`"
_MODEL: Final = (
    fixed("states.weights", "bf16", f"{_LOADED}: torch_dtype=torch.bfloat16"),
    fixed("quantization.format", "none", f"{_LOADED}: no quantization_config"),
    fixed(
        "attention.implementation",
        "sdpa",
        f"{_LOADED} names none: transformers modeling_utils.py then takes sdpa where it can",
    ),
    fixed("model.trust_remote_code", value=True, source=_LOADED, when=reads_images),
    fixed("model.trust_remote_code", value=True, source=_LOADED, until=TODAY, when=reads_text),
    fixed(
        "model.trust_remote_code",
        value=False,
        source=f"{_LOADED} since 2025-04: for the tokenizer alone",
        since=TODAY,
        when=reads_text,
    ),
    fixed("data.images", 1, f"{_SCRIPTS}: one image a conversation, or a blank", when=reads_images),
    fixed("data.images", 0, f"{_SCRIPTS} `process_batch`", when=reads_text),
)

_ENTRIES: Final = (*_DATA, *_PARTS, _LENGTH, *_MODEL, *_ARGUMENTS, *_ADAPTER)


_SECTIONS: Final = frozenset({"data_config", "training_args"})
_ITS_OWN: Final = frozenset({"combine", "freezeV", "peft_config", *_LENGTHS})


def _is_configuration(document: Json) -> bool:
    """Whether a document has both sections, and a key that other programs' files do not have."""
    if not isinstance(document, dict) or not set(document) >= _SECTIONS:
        return False
    data, arguments = document["data_config"], document["training_args"]
    has_files = isinstance(data, dict) and "train_file" in data
    generates = isinstance(arguments, dict) and "generation_config" in arguments
    return has_files or generates or not _ITS_OWN.isdisjoint(document)


CONFIGURATION: Final = File(
    name=NAME,
    format="yaml",
    entries=_ENTRIES,
    recognise=_is_configuration,
    schema=schema,
    names=("training_args.deepspeed",),
    check=every(
        checked(
            NAME,
            _ENTRIES,
            "training_args",
            schema_of("seq2seq_training_arguments", "", TRAINING_ARGS.entries),
            others=lambda key: key != "generation_config",
        ),
        checked(
            NAME, _ENTRIES, "peft_config", schema_of("lora_config", PEFT, ADAPTER_CONFIG.entries)
        ),
    ),
)
