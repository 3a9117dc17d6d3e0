"""Flags of alpaca-lora's finetune.py."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix, Term
from tunec.compiler.diagnostics.wording import nearest
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.training_loop import is_number
from tunec.compiler.lints.rule import Finding, rule

_FLAGS: Final[Mapping[str, int | float | None]] = {
    **dict.fromkeys(("base_model", "data_path", "output_dir", "lora_target_modules")),
    "batch_size": 128,
    "micro_batch_size": 4,
    "num_epochs": 3,
    "learning_rate": 3e-4,
    "cutoff_len": 256,
    "val_set_size": 2000,
    "lora_r": 8,
    "lora_alpha": 16,
    "lora_dropout": 0.05,
    **dict.fromkeys(("train_on_inputs", "add_eos_token", "group_by_length")),
    **dict.fromkeys(("wandb_project", "wandb_run_name", "wandb_watch", "wandb_log_model")),
    **dict.fromkeys(("resume_from_checkpoint", "prompt_template_name")),
}
"""tloen/alpaca-lora 8bb8579 finetune.py `train`: its parameters, and the numbers among their
defaults."""
_MADE_OF_IT: Final = frozenset(
    {
        *("use_gradient_checkpointing", "adapter_name", "load_8bit", "eval_step", "save_step"),
        *("bottleneck_size", "non_linearity", "use_parallel_adapter", "use_adapterp", "scaling"),
        *("num_virtual_tokens", "target_modules", "local_rank", "ds_config", "save_steps"),
        *("weight_decay", "warmup_ratio", "warmup_steps", "device", "seed", "fp16", "bf16"),
        *("template_dir", "cuda_id", "lora_modules", "data_length", "int8", "load_in_8bit"),
    }
)
"""Flags of scripts that were made of it: AGI-Edgerunners/LLM-Adapters finetune.py, and others."""


@rule(
    "alpaca-lora-flags-refused",
    "error",
    "init",
    consumers=("alpaca-lora",),
    reads=("alpaca-lora:*",),
)
def alpaca_lora_flags_refused(run: LintContext) -> Iterator[Finding]:
    """Flags of alpaca-lora's finetune.py that it does not take, or cannot train with."""
    for document in run.of("alpaca-lora"):
        is_another = bool(_MADE_OF_IT & document.found.keys())
        for path, at in document.found.items():
            if path not in _FLAGS and path not in _MADE_OF_IT and not is_another:
                yield _unknown(path, at)
        yield from _batch(run, document)


def _unknown(path: str, at: Place) -> Finding:
    near = nearest(path, frozenset(_FLAGS))[:1]
    return Finding(
        f"finetune.py has no flag `{path}`",
        (at.key_label("not consumed"),),
        ("python-fire gives each flag to a parameter of `train`: Could not consume arg",),
        f"did you mean `{near[0]}`?" if near else "remove it",
        Fix((at.renamed(near[0]),), "unsafe") if near else None,
        consequence="parse",
        severity=None if near else "warning",
    )


def _batch(run: LintContext, document: Document) -> Iterator[Finding]:
    """Accumulation is the batch by the samples of one step, and by the processes: rounded down."""
    batch, micro = document.get("batch_size"), document.get("micro_batch_size")
    world = run.value("parallel.world")
    at = batch or micro
    if at is None or {"batch_size", "micro_batch_size"} & document.unknown:
        return
    total, each = document.value("batch_size", 128), document.value("micro_batch_size", 4)
    if not all(is_number(n) and isinstance(n, int) and n > 0 for n in (total, each)):
        return
    processes = world if isinstance(world, int) and world > 1 else 1
    steps = total // each // processes
    places = (
        at.label("of all processes"),
        *([micro.label("", primary=False)] if batch and micro else []),
    )
    numbers = (
        Term("batch_size", total, ""),
        Term("micro_batch_size", each, ""),
        Term("processes", processes, ""),
    )
    if steps == 0:
        yield Finding(
            f"batch_size {total} is less than one step of {processes} x {each} samples",
            places,
            ("gradient_accumulation_steps becomes 0, and the trainer divides by it",),
            f"write --batch_size {each * processes} or more",
            sum=numbers,
        )
    elif steps * each * processes != total:
        yield Finding(
            f"an update is of {steps * each * processes} samples, and not of {total}",
            places,
            (f"{total} // {each} // {processes} is {steps}",),
            f"write --batch_size {steps * each * processes}",
            sum=numbers,
            severity="warning",
            consequence="silent",
        )
