"""Adapts the files so that they run here, and records which slots this hides."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import yaml
from msgspec import Struct, field

from tunec.compiler.ir.plan import Plan
from tunec.compiler.rehearse.shrink import SEQUENCE, Unrehearsable

Device = Literal["cpu", "cuda"]
Documents = dict[str, dict[str, Any]]

TRAINING, ADAPTER, MODEL, DEEPSPEED, SFT, DPO, REWARD = (
    "training_args.yaml",
    "adapter_config.json",
    "model_args.yaml",
    "ds_config.json",
    "sft.yaml",
    "dpo.yaml",
    "reward.yaml",
)

SCRIPTED: Final = (SFT, DPO, REWARD)
"""Files of TRL's scripts, each of which has all settings of a run."""

_ON_CPU: Final = ("adamw_torch", "adamw_torch_fused", "adafactor", "sgd")
"""Values of transformers' `optim` that torch can step on a CPU; the others are bitsandbytes'
kernels."""
_ADAM: Final = ("adam", "adamw")
_ARITHMETIC: Final = (
    *("precision.compute", "precision.loss_scaling", "precision.initial_scale_power"),
    *("precision.loss_scale_window", "precision.hysteresis", "precision.min_loss_scale"),
    *("states.weights", "states.trainable", "states.gradients", "states.autocast"),
)


class AdaptedFiles(Struct, frozen=True):
    """The files in the form in which they are rehearsed."""

    files: Mapping[str, str]
    """Texts by name."""
    dtype: str
    """The dtype in which the model is loaded, by torch's name."""
    attention: str
    hidden: Mapping[str, str]
    """The slots that the changes hide, with the reasons."""


class _Change(Struct):
    """The documents while they are being changed."""

    documents: Documents
    plan: Plan
    ranks: int
    hidden: dict[str, str] = field(default_factory=dict)

    def hide(self, reason: str, *slots: str) -> None:
        self.hidden |= dict.fromkeys(slots, reason)


def adapt(
    texts: Mapping[str, str],
    plan: Plan,
    device: Device,
    ranks: int,
    *,
    unquantised: str = "",
    script: str = TRAINING,
) -> AdaptedFiles:
    """Change the files for `ranks` processes on `device`, and nothing else.

    `texts` are the files of the target by name, `script` is the one with the Trainer's arguments.
    `unquantised` is the reason why the base is not quantised here; it is empty if the base is.
    Raises Unrehearsable if nothing remains that could run.
    """
    documents = {name: _read(name, texts[name]) for name in _known(texts)}
    if script not in documents:
        raise Unrehearsable(f"there is no {script}")
    if script != TRAINING:  # one file has them all
        documents[TRAINING] = documents[MODEL] = documents.pop(script)
    change = _Change(documents, plan, ranks)
    _surroundings(change)
    _batch(change)
    _quantised(change, unquantised)
    if script != TRAINING:
        _samples(change)
    if device == "cpu":
        _arithmetic(change)
        _optimizer(change)
        _trainer_on_cpu(change)
    model = documents.get(MODEL, {})
    return AdaptedFiles(
        {name: _write(name, each) for name, each in _files(documents, script)},
        _dtype(model),
        _attention(change, model, device),
        change.hidden,
    )


def _known(texts: Mapping[str, str]) -> Iterator[str]:
    return (name for name in (TRAINING, ADAPTER, MODEL, DEEPSPEED, *SCRIPTED) if name in texts)


def _files(documents: Documents, script: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The documents by file name."""
    for name, document in documents.items():
        if script == TRAINING or name != MODEL:
            yield (script if name == TRAINING else name), document


def _read(name: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text) if name.endswith(".json") else yaml.safe_load(text)
    except (json.JSONDecodeError, yaml.YAMLError) as fault:
        raise Unrehearsable(f"{name} cannot be read: {fault}") from None
    if not isinstance(found, dict):
        raise Unrehearsable(f"{name} holds no mapping")
    return found


def _write(name: str, document: Mapping[str, Any]) -> str:
    if name.endswith(".json"):
        return json.dumps(document, indent=2)
    return str(yaml.safe_dump(document, sort_keys=False))


# ── everywhere ───────────────────────────────────────────────────────────────────────────────────


def _surroundings(change: _Change) -> None:
    """Turn off trackers and evaluation, and write everything to one folder."""
    arguments = change.documents[TRAINING]
    arguments |= {"output_dir": "output", "report_to": "none", "dataloader_num_workers": 0}
    for key in ("eval_strategy", "evaluation_strategy"):
        if key in arguments:
            arguments[key] = "no"
    change.hide("a rehearsal writes to a temporary folder", "runtime.output")
    change.hide("trackers are switched off", "runtime.report_to")
    change.hide("generated data needs no loader processes", "runtime.dataloader_workers")


def _batch(change: _Change) -> None:
    """Scale a global batch in the file from the plan's processes to `ranks`."""
    config = change.documents.get(DEEPSPEED, {})
    given, width = config.get("train_batch_size"), change.plan.parallel.data
    if isinstance(given, int) and given % width == 0:
        config["train_batch_size"] = given // width * change.ranks
    if "nvme" in (change.plan.zero.offload_optimizer, change.plan.zero.offload_param):
        raise Unrehearsable("offload to NVMe needs a disk of the cluster")


def _quantised(change: _Change, unquantised: str) -> None:
    """Without bitsandbytes, rehearse the base in the dtype in which it is loaded."""
    if not unquantised:
        return
    names = ("format", "double", "compute", "storage")
    change.hide(unquantised, *(f"quantization.{name}" for name in names))
    for key in ("load_in_4bit", "load_in_8bit"):
        change.documents.get(MODEL, {}).pop(key, None)


def _samples(change: _Change) -> None:
    """Make generated samples as long as the shrunk model's sequence."""
    arguments = change.documents[TRAINING]
    for key in ("max_length", "max_seq_length"):
        if key in arguments:
            arguments[key] = SEQUENCE


# ── on a CPU ─────────────────────────────────────────────────────────────────────────────────────


def _arithmetic(change: _Change) -> None:
    """Use bf16 for fp16: a CPU has no fp16 training (deepspeed accelerator/cpu_accelerator.py)."""
    if change.plan.precision.compute != "fp16":
        return
    arguments, config = change.documents[TRAINING], change.documents.get(DEEPSPEED, {})
    arguments |= {"fp16": False, "bf16": True}
    if DEEPSPEED in change.documents:
        config |= {"fp16": {"enabled": False}, "bf16": {"enabled": True}}
        if config.get("data_types", {}).get("grad_accum_dtype") == "fp16":
            config["data_types"] = {"grad_accum_dtype": "bf16"}
    for key in ("dtype", "torch_dtype"):
        if change.documents.get(MODEL, {}).get(key) == "float16":
            change.documents[MODEL][key] = "bfloat16"
    change.hide("fp16 training needs a GPU: bf16 is used instead", *_ARITHMETIC)


def _optimizer(change: _Change) -> None:
    """Use torch's own optimizers, as DeepSpeed's are compiled when they are first used."""
    arguments, block = change.documents[TRAINING], change.documents.get(DEEPSPEED, {})
    if arguments.get("optim") not in (*_ON_CPU, None):
        arguments["optim"] = "adamw_torch"
        reason = "bitsandbytes' optimizers need a GPU: torch's AdamW is used instead"
        change.hide(reason, "optimizer.name", "optimizer.kernel", "states.optimizer")
    optimizer = block.get("optimizer")
    if not isinstance(optimizer, dict):
        return
    if str(optimizer.get("type")).lower() not in _ADAM:
        optimizer["type"] = "AdamW"
        change.hide("torch's AdamW replaces DeepSpeed's own kernel", "optimizer.name")
    # deepspeed 0.19.8 runtime/engine.py `_configure_basic_optimizer`: torch_adam
    params = {**optimizer.get("params", {}), "torch_adam": True}
    params.pop("momentum", None)
    optimizer["params"] = params
    reason = "DeepSpeed would have to compile its own kernel: torch's AdamW is used instead"
    change.hide(reason, "optimizer.kernel")


def _trainer_on_cpu(change: _Change) -> None:
    arguments = change.documents[TRAINING]
    arguments.pop("tf32", None)
    arguments |= {"use_cpu": True, "dataloader_pin_memory": False}
    change.hide("TF32 needs a GPU", "precision.tf32")
    change.hide("page-locked memory needs a GPU", "runtime.dataloader_pin_memory")
    change.hide("page-locked memory needs a GPU", "zero.pin_memory")


# ── the model ────────────────────────────────────────────────────────────────────────────────────


def _dtype(model: Mapping[str, Any]) -> str:
    found = str(model.get("dtype", model.get("torch_dtype", "float32"))).removeprefix("torch.")
    return found if found in ("float32", "bfloat16", "float16") else "float32"


def _attention(change: _Change, model: Mapping[str, Any], device: Device) -> str:
    wanted = str(model.get("attn_implementation", "sdpa"))
    if device == "cpu" and wanted not in ("eager", "sdpa"):
        reason = f"{wanted} needs a GPU: sdpa is used instead"
        change.hide(reason, "attention.implementation")
        return "sdpa"
    return wanted
