"""The best model is to be loaded from checkpoints that a sharded engine cannot load."""

from collections.abc import Iterator

from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    only, best = (run.said("trainer", key) for key in ("save_only_model", "load_best_model_at_end"))
    if only is None or best is None or only.value is not True or best.value is not True:
        return
    engine = run.of("deepspeed")
    fsdp = run.said("trainer", "fsdp") or _launched(run)
    sharded = run.said("trainer", "deepspeed") or (fsdp if fsdp and fsdp.value else None)
    if engine or sharded:
        name = "DeepSpeed" if engine or not fsdp else "FSDP"
        yield Finding(
            f"save_only_model and load_best_model_at_end under {name}",
            (
                only.label(""),
                best.label("", primary=False),
                *([sharded.label("", primary=False)] if sharded else []),
            ),
            (f"{name} loads a checkpoint with its states, and these hold none",),
            "drop one of the two",
        )


def _launched(run: Run) -> Place | None:
    """Where the launcher's file asks for FSDP."""
    asks = (each for each in run.each("accelerate", "distributed_type") if each.value == "FSDP")
    return next(asks, None)


RULE = Rule(
    name="best-model-of-weights-only",
    severity="error",
    consequence="init",
    consumers=("transformers",),
    sources=(
        (
            "transformers 5.23.0 trainer.py `_validate_args`: ValueError, can't be used with "
            "`save_only_model` along with `load_best_model_at_end`"
        ),
        "huggingface/transformers#27751, #28866",
    ),
    check=_check,
)
