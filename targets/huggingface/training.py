"""Rows of TrainingArguments for batch, optimizer, loss and data loading."""

from collections.abc import Mapping
from typing import Any

from packaging.version import Version

from tunec.compiler.ir.plan import Draft, Plan
from tunec.compiler.target import ALWAYS, Entry, Phrase, derived, fixed, same
from tunec.schemas.frozen import replace
from tunec.schemas.terms import OptimizerKernel, OptimizerName
from tunec.targets.rows import leaves_parts_unused

_SOURCE = "transformers 4.40.2 to 5.23.0 training_args.py `TrainingArguments`"
_OPTIMIZERS = "transformers 4.40.2 to 5.23.0 training_args.py `OptimizerNames`"


def _default(key: str, slot: str, value: Any) -> Entry:
    """A key that holds a slot, with a default that is the same in every release."""
    return same(key, slot, _SOURCE, default=value)


# ── batch and optimizer ──────────────────────────────────────────────────────────────────────────

BATCH = (
    _default("per_device_train_batch_size", "batch.micro", 8),
    _default("per_device_eval_batch_size", "batch.evaluation", 8),
    _default("gradient_accumulation_steps", "batch.accumulation", 1),
)

_OPTIM: dict[tuple[OptimizerName, OptimizerKernel], str] = {
    ("adamw", "fused"): "adamw_torch_fused",
    ("adamw", "foreach"): "adamw_torch",
    ("adamw_8bit", "bitsandbytes"): "adamw_8bit",
    ("paged_adamw_8bit", "bitsandbytes"): "paged_adamw_8bit",
    ("paged_adamw_32bit", "bitsandbytes"): "paged_adamw_32bit",
    ("adafactor", "own"): "adafactor",
    ("lion", "own"): "lion_32bit",
    ("lion_8bit", "bitsandbytes"): "lion_8bit",
    ("paged_lion_8bit", "bitsandbytes"): "paged_lion_8bit",
    ("paged_lion_32bit", "bitsandbytes"): "paged_lion_32bit",
    ("sgd", "foreach"): "sgd",
    ("lomo", "own"): "lomo",
    ("adalomo", "own"): "adalomo",
}
"""By default torch's own classes use foreach on CUDA: torch 2.13 optim/optimizer.py
`_default_to_fused_or_foreach`. lion_32bit is bitsandbytes' Lion."""
_ALIASES = {"adamw_bnb_8bit": "adamw_8bit"}
_OFFLOADED: dict[OptimizerName, str] = {"adamw": "adamw_torch", "lion": "lion_32bit"}


def _names_kernel(plan: Plan) -> bool:
    """Whether `optim` decides which kernel runs.

    If the optimizer is offloaded, DeepSpeed's CPU optimizer runs, and Muon is named in DeepSpeed's
    file (transformers 4.40.2 to 5.23.0 integrations/deepspeed.py `deepspeed_optim_sched` does not
    read `optim` then).
    """
    if plan.optimizer.name == "muon":
        return False
    return plan.zero.offload_optimizer == "none" or _pair(plan) in _OPTIM


def _pair(plan: Plan | Draft) -> tuple[OptimizerName, OptimizerKernel]:
    return plan.optimizer.name, plan.optimizer.kernel


def _write_optim(plan: Plan) -> Mapping[str, Any]:
    word = _OPTIM.get(_pair(plan))
    return {} if word is None else {"optim": word}


def _read_optim(found: Mapping[str, Any]) -> Mapping[str, Any]:
    word = _ALIASES.get(found["optim"], found["optim"])
    pairs = [pair for pair, known in _OPTIM.items() if known == word]
    return {"optimizer.name": pairs[0][0], "optimizer.kernel": pairs[0][1]} if pairs else {}


def _write_offloaded(plan: Plan) -> Mapping[str, Any]:
    word = _OFFLOADED.get(plan.optimizer.name)
    return {} if word is None else {"optim": word}


def _read_offloaded(found: Mapping[str, Any]) -> Mapping[str, Any]:
    names = [name for name, word in _OFFLOADED.items() if word == found["optim"]]
    return {"optimizer.name": names[0]} if names else {}


_PACKAGES: Mapping[str, str] = {
    "lion_32bit": "bitsandbytes",
    "lomo": "lomo-optim",
    "adalomo": "lomo-optim",
}
"""The distribution without which the Trainer refuses an optimizer that is not of a bitsandbytes
kernel: transformers 4.40.2 to 5.23.0 trainer.py `get_optimizer_cls_and_kwargs`, from 5.6
trainer_optimizer.py."""


def optimizer_packages(draft: Draft, _: Version) -> tuple[str, ...]:
    """What the Trainer imports for its optimizer beside a bitsandbytes kernel's package."""
    package = _PACKAGES.get(_OPTIM.get(_pair(draft), ""))
    return () if package is None else (package,)


_WITHOUT_MOMENTS: tuple[OptimizerName, ...] = ("adafactor", "sgd", "lomo", "adalomo")
_SIGN_ONLY: tuple[OptimizerName, ...] = (
    *("lion", "lion_8bit", "paged_lion_8bit", "paged_lion_32bit"),
)


def _has_moments(plan: Plan) -> bool:
    """Whether the optimizer gets the betas.

    transformers 4.40.2 to 5.23.0 trainer.py `get_optimizer_cls_and_kwargs`, 5.6.2 to 5.23.0
    trainer_optimizer.py.
    """
    return plan.optimizer.name not in _WITHOUT_MOMENTS


def _has_epsilon(plan: Plan) -> bool:
    """Whether the optimizer gets epsilon; Lion does not divide."""
    return _has_moments(plan) and plan.optimizer.name not in _SIGN_ONLY


OPTIMIZER = (
    Entry(
        ("optim",),
        ("optimizer.name", "optimizer.kernel"),
        _write_optim,
        _read_optim,
        f"{_OPTIMIZERS}; absent it is adamw_torch until 4.51, then by torch: fused from 2.8 on",
        absent=(
            (ALWAYS, {"optimizer.name": "adamw", "optimizer.kernel": "foreach"}),
            ("4.52", {"optimizer.name": "adamw"}),
        ),
        when=_names_kernel,
    ),
    Entry(
        ("optim",),
        ("optimizer.name",),
        _write_offloaded,
        _read_offloaded,
        _OPTIMIZERS,
        when=lambda plan: not _names_kernel(plan) and plan.optimizer.name != "muon",
    ),
    _default("weight_decay", "optimizer.weight_decay", 0.0),
    replace(_default("adam_beta1", "optimizer.beta1", 0.9), when=_has_moments),
    replace(_default("adam_beta2", "optimizer.beta2", 0.999), when=_has_moments),
    replace(_default("adam_epsilon", "optimizer.epsilon", 1e-8), when=_has_epsilon),
    _default("max_grad_norm", "optimizer.max_grad_norm", 1.0),
)

ADAMW = Phrase(
    ("optim",),
    lambda found: {} if found.get("optim") else {"optimizer.name": "adamw"},
    f"{_OPTIMIZERS}: the default of each release, also where DeepSpeed has its own for the host",
    by_default=True,
)
"""The optimizer without a key, whose kernel rows tell."""

LEARNING_RATE = _default("learning_rate", "optimizer.learning_rate", 5e-5)
TRL_LEARNING_RATE = same(
    "learning_rate",
    "optimizer.learning_rate",
    "trl trainer/sft_config.py `SFTConfig`: 5e-5 to 0.11, 2e-5 from 0.12",
    absent=((ALWAYS, 5e-5), ("0.12", 2e-5)),
    package="trl",
)


# ── loss ─────────────────────────────────────────────────────────────────────────────────────────

_LIGER = (
    "transformers 4.45.2 to 5.23.0 training_args.py `use_liger_kernel`: trainer.py patches the "
    "model with Liger's defaults, the fused linear cross entropy among them"
)


def _not_in_pieces(plan: Plan) -> bool:
    """Whether transformers' own Trainer can compute the loss; it cannot compute it in chunks."""
    return plan.loss.path != "chunked"


def write_liger(plan: Plan) -> Mapping[str, Any]:
    """The key if Liger fuses the loss; otherwise nothing."""
    return {"use_liger_kernel": True} if plan.loss.path == "fused" else {}


def _read_liger(found: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"loss.path": "fused" if found["use_liger_kernel"] is True else "full"}


LOSS = (
    Entry(
        ("use_liger_kernel",),
        ("loss.path",),
        write_liger,
        _read_liger,
        _LIGER,
        since="4.45",
        absent=((ALWAYS, {"loss.path": "full"}),),
        when=_not_in_pieces,
    ),
    fixed("loss.path", "full", _LIGER, until="4.45", when=_not_in_pieces),
)


# ── what surrounds the loop ──────────────────────────────────────────────────────────────────────


def _write_trackers(plan: Plan) -> Mapping[str, Any]:
    return {"report_to": list(plan.runtime.report_to) or "none"}


def _read_trackers(found: Mapping[str, Any]) -> Mapping[str, Any]:
    names = found["report_to"]
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or names == ["all"]:
        return {}
    return {"runtime.report_to": () if names == ["none"] else tuple(names)}


RUNTIME = (
    same(
        "output_dir",
        "runtime.output",
        f"{_SOURCE}: required until 4.48",
        absent=(("4.49", "trainer_output"),),
    ),
    _default("seed", "runtime.seed", 42),
    _default("neftune_noise_alpha", "runtime.neftune_alpha", None),
    _default("dataloader_num_workers", "runtime.dataloader_workers", 0),
    _default("dataloader_pin_memory", "runtime.dataloader_pin_memory", True),
    Entry(
        ("report_to",),
        ("runtime.report_to",),
        _write_trackers,
        _read_trackers,
        f"{_SOURCE}: every installed tracker until 4.57, none from 5.0",
        absent=((ALWAYS, {}), ("5.0", {"runtime.report_to": ()})),
    ),
    derived(
        "remove_unused_columns",
        lambda plan: plan.model.kind != "vision-language" and plan.objective.kind == "sft",
        "transformers 4.40.2 to 5.23.0 trainer.py `_remove_unused_columns`: drops columns that "
        "forward() does not name, which the collator of a model with images or of pairs needs, "
        "and rewards",
    ),
    derived(
        "label_names",
        lambda plan: (
            ["labels"] if plan.adapter.kind != "none" and plan.objective.kind == "sft" else None
        ),
        "transformers trainer.py `__init__`: the labels of a PeftModel cannot be found by "
        "signature, and evaluation then has no loss",
    ),
    derived(
        "ddp_find_unused_parameters",
        lambda plan: leaves_parts_unused(plan) if plan.parallel.engine == "ddp" else None,
        "transformers trainer.py `_wrap_model`: absent, it is on wherever checkpointing is off; "
        "torch 2.13.0 distributed `Reducer`: a step ends in an error where a trained parameter has "
        "no gradient, as in a tower that sees no image",
    ),
    derived(
        "average_tokens_across_devices",
        lambda plan: plan.parallel.world > 1,
        f"{_SOURCE}, from 4.46.3: default False to 4.53, then True",
        since="4.46.3",
    ),
)
