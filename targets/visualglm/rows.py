"""The flags of finetune_visualglm.py: its own, and those of SwissArmyTransformer's get_args.

With `--deepspeed_config` the file overrides the flags for precision, micro batch, accumulation,
learning rate and weight decay (sat/arguments.py `get_args`), so the flags leave these out.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan, training_data
from tunec.compiler.target import ALWAYS, Entry, Json, constant, fixed, in_no_plan, named, same
from tunec.targets.read_only import observed
from tunec.targets.rows import is_quantised, rises_over_a_share, unlimited
from tunec.targets.scripts.file import started

SCRIPT: Final = "finetune_visualglm.py"
FILE: Final = "THUDM/VisualGLM-6B e314fb9, finetune_visualglm.py"
SAT: Final = "SwissArmyTransformer 0.4.12"
_ARGUMENTS: Final = f"{SAT} arguments.py"
_TRAINING: Final = f"{SAT} training/deepspeed_training.py"


def _default(key: str, slot: str, value: Any) -> Entry:
    return same(key, slot, _ARGUMENTS, default=value)


# ── model and data ───────────────────────────────────────────────────────────────────────────────

_LENGTHS: Final = ("max_source_length", "max_target_length")


def _write_lengths(plan: Plan) -> Mapping[str, Json]:
    """Write the lengths: a fifth for the question, as in the script (64 and 256)."""
    source = plan.data.sequence // 5
    return dict(zip(_LENGTHS, (source, plan.data.sequence - source), strict=True))


def _write_parts(plan: Plan) -> Mapping[str, Json]:
    return {"train-data": list(training_data(plan)) if plan.data.more else plan.data.train}


def _read_parts(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The data sets; their weights, `train-data-weights`, have no slot value."""
    said = found["train-data"]
    first, *more = said if isinstance(said, list) else [said]
    return {"data.train": first, "data.more": tuple(more)}


_DATA: Final = (
    fixed("model.path", "THUDM/visualglm-6b", f"{FILE}: from_pretrained('visualglm-6b')"),
    fixed("model.kind", "vision-language", f"{FILE} `FewShotDataset`"),
    Entry(
        ("train-data",),
        ("data.train", "data.more"),
        _write_parts,
        _read_parts,
        f"{_ARGUMENTS} `add_data_args`; data_utils/configure_data.py `ConcatDataset`",
    ),
    unlimited(f"{_ARGUMENTS} `add_data_args`: all of each is read"),
    same("valid-data", "data.evaluation", f"{_ARGUMENTS} `add_data_args`", default=None),
    constant("split", "1", f"{SAT} data_utils/configure_data.py: else training data is split off"),
    Entry(
        _LENGTHS,
        ("data.sequence",),
        _write_lengths,
        lambda found: {"data.sequence": sum(found[key] for key in _LENGTHS)},
        f"{FILE} `FewShotDataset`: padded to the sum, the places of the image included",
    ),
    fixed("data.packing", value=False, source=f"{FILE} `FewShotDataset`"),
    fixed("data.images", 1, f"{FILE} `FewShotDataset`: one image an item"),
    fixed("data.image_width", 224, f"{FILE} BlipImageEvalProcessor(224)"),
    fixed("data.image_height", 224, f"{FILE} BlipImageEvalProcessor(224)"),
    fixed("precision.tf32", value=False, source=f"{_ARGUMENTS} `set_random_seed`: allow_tf32"),
)


# ── adapter and quantisation ─────────────────────────────────────────────────────────────────────

TARGETS: Final = r"transformer\.layers\.\d+\.attention\.(query_key_value|dense)"
_MIXIN: Final = f"{FILE} `FineTuneVisualGLMModel`; {SAT} model/finetune/lora2.py `LoraMixin`"
_FLAGS: Final[Mapping[str, str]] = {"none": "use_lora", "nf4": "use_qlora"}


def _write_adapter(plan: Plan) -> Mapping[str, Json]:
    flag = _FLAGS.get(plan.quantization.format)
    return {flag: True} if flag and plan.adapter.kind == "lora" else {}


def _read_adapter(found: Mapping[str, Json]) -> Mapping[str, Any]:
    if found.get("use_lora") is True:
        return {"adapter.kind": "lora", "quantization.format": "none"}
    return {"adapter.kind": "lora", "quantization.format": "nf4"} if found["use_qlora"] else {}


_LAYERS: Final = "layer_range"
_SOME: Final = re.compile(re.escape(TARGETS).replace(re.escape(r"\d+"), r"\((\d+(?:\|\d+)*)\)"))


def _write_layers(plan: Plan) -> Mapping[str, Json]:
    found = _SOME.fullmatch(str(plan.adapter.targets))
    return {} if found is None else {_LAYERS: [int(each) for each in found[1].split("|")]}


def _read_layers(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The target layers: only the listed ones, not those in between."""
    said = found[_LAYERS]
    layers = "|".join(str(each) for each in (said if isinstance(said, list) else [said]))
    return {"adapter.targets": TARGETS.replace(r"\d+", f"({layers})")}


_ADAPTER: Final = (
    Entry(
        ("use_lora", "use_qlora"),
        ("adapter.kind", "quantization.format"),
        _write_adapter,
        _read_adapter,
        f"{_MIXIN}; with neither, `disable_untrainable_params` freezes every parameter",
    ),
    same("lora_rank", "adapter.rank", f"{FILE} `add_model_specific_args`", default=10),
    fixed("adapter.alpha", 1.0, f"{_MIXIN}: lora_alpha is its default, 1"),
    fixed("adapter.dropout", 0.0, f"{_MIXIN}: lora_dropout is its default, 0"),
    Entry(
        (_LAYERS,),
        ("adapter.targets",),
        _write_layers,
        _read_layers,
        f"{_MIXIN}: every layer without it",
        absent=((ALWAYS, {"adapter.targets": TARGETS}),),
    ),
    fixed("adapter.bias", "none", _MIXIN),
    fixed("adapter.parameters", (), _MIXIN),
    fixed("adapter.rslora", value=False, source=_MIXIN),
    fixed("adapter.dora", value=False, source=_MIXIN),
    fixed("adapter.also_train", (), f"{FILE} `disable_untrainable_params`: matrix_A and matrix_B"),
    fixed("adapter.frozen", (), f"{FILE} `disable_untrainable_params`"),
    fixed(
        "quantization.double",
        value=True,
        source="bitsandbytes nn/modules.py `Linear4bit`: compress_statistics",
        when=is_quantised,
    ),
    fixed(
        "quantization.storage",
        None,
        "bitsandbytes nn/modules.py `Linear4bit`: quant_storage is uint8",
        when=is_quantised,
    ),
)


# ── length and learning rate ─────────────────────────────────────────────────────────────────────

_TO_NOTHING: Final = 1e-9
"""The share of the learning rate at which a cosine ends; it is a divisor, so not 0."""
_RATES: Final = (
    f"{SAT} training/learning_rates.py `AnnealingLR`; {_TRAINING} `get_learning_rate_scheduler`: "
    "mode finetune begins with 100 steps at 5%"
)
_SHARES: Final = ("lr-decay-style", "warmup", "lr-decay-ratio", "mode", "train-iters")


def _write_rates(plan: Plan) -> Mapping[str, Json]:
    """Write the schedule; after a warmup linear and cosine would not end at 0."""
    kind, warmup = plan.schedule.kind, plan.schedule.warmup_steps
    style = {"lr-decay-style": "constant", "mode": "pretrain"}
    if kind == "constant_with_warmup" and warmup and counts_iterations(plan):
        steps = plan.schedule.steps
        return {**style, "warmup": warmup / steps, "train-iters": steps} if steps else {}
    if warmup or kind == "constant_with_warmup":
        return {}
    ratio = {"lr-decay-ratio": _TO_NOTHING} if kind == "cosine" else {}
    return {**style, "lr-decay-style": kind, "warmup": 0.0, **ratio}


def _read_rates(found: Mapping[str, Json]) -> Mapping[str, Any]:
    style, share = found.get("lr-decay-style", "linear"), found.get("warmup", 0.01)
    if found.get("mode", "pretrain") != "pretrain":
        return {}  # the first 100 steps then have a twentieth of the rate
    if not share:
        is_ours = style in ("constant", "linear") or found.get("lr-decay-ratio", 0.1) <= _TO_NOTHING
        return {"schedule.kind": style, "schedule.warmup_steps": 0} if is_ours else {}
    if style != "constant" or "train-iters" not in found:
        return {}
    steps = round(share * found["train-iters"])
    return {"schedule.kind": "constant_with_warmup", "schedule.warmup_steps": steps}


def _write_share(plan: Plan) -> Mapping[str, Json]:
    """The warmup as a share of all iterations, with which linear and cosine would not end at 0."""
    if plan.schedule.kind != "constant_with_warmup":
        return {}
    share = plan.schedule.warmup_share
    return {"lr-decay-style": "constant", "mode": "pretrain", "warmup": share}


def _read_share(found: Mapping[str, Json]) -> Mapping[str, Any]:
    share = found.get("warmup", 0.01)
    if found.get("mode", "pretrain") != "pretrain" or not share:
        return {}
    if found.get("lr-decay-style", "linear") != "constant":
        return {}
    return {"schedule.kind": "constant_with_warmup", "schedule.warmup_share": share}


def _write_length(plan: Plan) -> Mapping[str, Json]:
    """Write steps of the optimizer or epochs, as both together are refused."""
    epochs, steps = plan.schedule.epochs, plan.schedule.steps
    if counts_iterations(plan):
        return {} if steps is None else {"train-iters": steps}
    return {"epochs": int(epochs)} if epochs is not None and epochs == int(epochs) else {}


def _read_steps(found: Mapping[str, Json]) -> Mapping[str, Any]:
    steps = found.get("train-iters")
    return {} if steps is None else {"schedule.steps": steps, "schedule.epochs": None}


def counts_iterations(plan: Plan) -> bool:
    """Whether the length is given in steps, since `epochs` would count each micro batch as one."""
    schedule = plan.schedule
    by_need = plan.batch.accumulation > 1 and schedule.steps is not None
    return schedule.epochs is None or by_need


_SCHEDULE: Final = (
    Entry(
        _SHARES,
        ("schedule.kind", "schedule.warmup_steps"),
        _write_rates,
        _read_rates,
        _RATES,
        when=lambda plan: not rises_over_a_share(plan),
    ),
    Entry(
        _SHARES,
        ("schedule.kind", "schedule.warmup_share"),
        _write_share,
        _read_share,
        _RATES,
        when=rises_over_a_share,
    ),
    Entry(
        ("train-iters", "epochs"),
        ("schedule.steps", "schedule.epochs"),
        _write_length,
        _read_steps,
        f"{_TRAINING} `train_step`: an iteration ends with an optimizer step",
        absent=((ALWAYS, {"schedule.steps": 10000, "schedule.epochs": None}),),
        when=lambda plan: plan.schedule.epochs is None,
    ),
    Entry(
        ("train-iters",),
        ("schedule.steps",),
        _write_length,
        _read_steps,
        f"{_TRAINING} `train_step`: the steps of so many epochs",
        when=lambda plan: plan.schedule.epochs is not None and counts_iterations(plan),
    ),
    Entry(
        ("epochs",),
        ("schedule.epochs",),
        _write_length,
        lambda found: {"schedule.epochs": float(found["epochs"])},
        f"{_ARGUMENTS} `get_args`: with train-iters it is refused",
        when=lambda plan: not counts_iterations(plan),
    ),
    same("save-interval", "schedule.save_steps", _ARGUMENTS, default=5000),
    fixed("schedule.keep_checkpoints", None, f"{_TRAINING} `train`: none is deleted"),
    _default("log-interval", "schedule.log_steps", 50),
    _default("eval-interval", "schedule.evaluation_steps", None),
)


# ── without a file for the engine ────────────────────────────────────────────────────────────────

_FILE: Final = "deepspeed_config"
_ENGINE: Final = ("batch-size", "gradient-accumulation-steps", "lr", "weight-decay", "zero-stage")
_BETA2: Final[Mapping[int, float]] = {0: 0.999, 1: 0.95, 2: 0.95}
"""AdamW's second beta by stage: that of training/deepspeed_zero0.json, and of the others."""


def _read_engine(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The settings in DeepSpeed's file for the stage of the flags; stage 3 has no file.

    ZeRO uses fp16 if neither precision is given.
    """
    stage = found.get("zero-stage", 0)
    if found.get(_FILE) is not None or stage not in _BETA2:
        return {}
    is_half = found.get("fp16") is True or (stage > 0 and found.get("bf16") is not True)
    compute = "fp16" if is_half else "bf16" if found.get("bf16") is True else "fp32"
    buckets = {"zero.reduce_bucket": 40_000_000, "zero.allgather_bucket": 100_000_000}
    return {
        "precision.compute": compute,
        "batch.micro": found.get("batch-size", 4),
        "batch.accumulation": found.get("gradient-accumulation-steps", 1),
        "optimizer.name": "adamw",
        "optimizer.learning_rate": found.get("lr", 1e-4),
        "optimizer.weight_decay": found.get("weight-decay", 0.01),
        "optimizer.beta1": 0.9,
        "optimizer.beta2": _BETA2[stage],
        "optimizer.epsilon": 1e-8,
        "optimizer.max_grad_norm": 0.1,
        "zero.stage": stage,
        **(buckets if stage else {}),
    }


_WITHOUT_FILE: Final = observed(
    (_FILE, *_ENGINE, "fp16", "bf16"),
    (
        *("precision.compute", "batch.micro", "batch.accumulation", "optimizer.name"),
        *("optimizer.learning_rate", "optimizer.weight_decay", "optimizer.beta1"),
        *("optimizer.beta2", "optimizer.epsilon", "optimizer.max_grad_norm", "zero.stage"),
        *("zero.reduce_bucket", "zero.allgather_bucket"),
    ),
    _read_engine,
    f"{_ARGUMENTS} `get_args`; {SAT} training/deepspeed_zero0.json, deepspeed_zero1.json, "
    "deepspeed_zero2.json",
    when=in_no_plan,
)


# ── what surrounds the loop ──────────────────────────────────────────────────────────────────────

_RUN: Final = (
    named(
        "checkpoint-activations",
        "activation_checkpointing.mode",
        {"layer": True, "none": False},
        _ARGUMENTS,
        default="none",
    ),
    fixed(
        "activation_checkpointing.reentrant",
        value=True,
        source=f"{SAT} model/transformer.py: deepspeed.checkpointing.checkpoint",
        when=lambda plan: plan.activation_checkpointing.mode == "layer",
    ),
    same(
        "checkpoint-num-layers",
        "activation_checkpointing.segment",
        f"{_ARGUMENTS}: 'chunk size (number of layers) for checkpointing'",
        default=1,
    ),
    fixed(
        "activation_checkpointing.gap",
        0,
        f"{SAT} model/transformer.py `BaseTransformer.forward`: chunk after chunk",
    ),
    same("eval-batch-size", "batch.evaluation", f"{_ARGUMENTS}; absent, as in training"),
    _default("seed", "runtime.seed", 1234),
    same("save", "runtime.output", f"{_ARGUMENTS}; below it a folder for each run"),
    _default("num-workers", "runtime.dataloader_workers", 1),
    fixed(
        "runtime.dataloader_pin_memory", value=True, source=f"{SAT} data_utils/configure_data.py"
    ),
    named(
        "wandb",
        "runtime.report_to",
        {("tensorboard",): False, ("tensorboard", "wandb"): True},
        f"{_TRAINING} `training_main`: get_sample_writer always",
        default=("tensorboard",),
    ),
    constant("skip-init", value=True, source=f"{FILE}: the weights are read afterwards"),
    constant(_FILE, "ds_config.json", f"{_ARGUMENTS} `get_args`"),
    fixed("parallel.engine", "deepspeed", f"{_TRAINING}: 'only support training with deepspeed'"),
)

FLAGS: Final = (*_DATA, *_ADAPTER, *_SCHEDULE, _WITHOUT_FILE, *_RUN)
TEXT: Final = frozenset({"train-data", "valid-data", "save", "split", "deepspeed_config"})


def _write_script(plan: Plan) -> Mapping[str, Json]:
    return {"script": [started(plan, SCRIPT)]}


START: Final = Entry(("script",), (), _write_script, lambda _: {}, FILE)

_PLACE: Final = "activation_checkpointing.cpu_checkpointing"
_OFFLOAD: Final = "activation_checkpointing.offload"
ON_THE_HOST: Final = Entry(
    (_PLACE,),
    (_OFFLOAD,),
    lambda plan: {_PLACE: True} if plan.activation_checkpointing.offload else {},
    lambda found: {_OFFLOAD: found[_PLACE] is True},
    f"{SAT} arguments.py `initialize_distributed`: deepspeed.checkpointing.configure reads it",
    absent=((ALWAYS, {_OFFLOAD: False}),),
)
"""A row for DeepSpeed's file."""
