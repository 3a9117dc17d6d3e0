"""The nemo-automodel target: one YAML for its recipe that finetunes text models under FSDP 2."""

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.analyses.counting import Counting, Epoch
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.ir.plan import Draft, Plan
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.target import Cannot, Dialect, File, Json, Target
from tunec.schemas.data_paths import Record
from tunec.schemas.spec import Spec
from tunec.targets.answers import answers_alone, only_answers
from tunec.targets.chat_template import plain_template
from tunec.targets.huggingface.packages import PEFT, PEFT_RELEASES, TRANSFORMERS
from tunec.targets.huggingface.target import CANNOT
from tunec.targets.huggingface.text_layers import SAME_NAMES, layer_names
from tunec.targets.nemo_automodel.data import DATA, foreign
from tunec.targets.nemo_automodel.engine import ALWAYS_SO, ENGINE
from tunec.targets.nemo_automodel.migration import LEAVES
from tunec.targets.nemo_automodel.model import ADAPTER, MODEL, QUANTIZATION
from tunec.targets.nemo_automodel.packages import (
    NAME,
    RELEASES,
    SUPPORTED,
    installed_releases,
    ranges,
)
from tunec.targets.nemo_automodel.refusals import REFUSALS
from tunec.targets.nemo_automodel.training import BATCH, OPTIMIZER, RUN, SCHEDULE
from tunec.targets.read_only import schema_of
from tunec.targets.rows import evaluates, has_adapter, recomputes_layers
from tunec.targets.scripts.refusals import refusing
from tunec.targets.trainers import (
    averaging_tokens,
    going_on,
    other_releases,
    reading_formats,
    supervised,
    writing_text,
)

_RECIPES: Final = "TrainFinetuneRecipe"
_OWN: Final = "nemo_automodel."


def _is_nemo(document: Json) -> bool:
    """Whether a document names a recipe of the package, or one of its models, and a scheduler."""
    if not isinstance(document, dict):
        return False
    recipe, model = document.get("recipe"), document.get("model")
    named = recipe.get("_target_") if isinstance(recipe, dict) else recipe
    if isinstance(named, str) and (named.startswith((_OWN, _RECIPES)) or _RECIPES in named):
        return True
    kind = model.get("_target_") if isinstance(model, dict) else None
    is_own = isinstance(kind, str) and kind.startswith(_OWN)
    return is_own and isinstance(document.get("step_scheduler"), dict)


CONFIG: Final = File(
    name="nemo_automodel.yaml",
    format="yaml",
    entries=(
        *MODEL,
        *ADAPTER,
        *QUANTIZATION,
        *ENGINE,
        *DATA,
        *BATCH,
        *OPTIMIZER,
        *SCHEDULE,
        *RUN,
    ),
    recognise=_is_nemo,
    schema=schema_of(NAME, RELEASES, NAME),
    check=other_releases(NAME, ranges, installed_releases),
    leaves=LEAVES,
    # recipes/llm/train_ft.py `_dp_allreduce`; components/datasets/llm/formatting_utils.py
    defaults=answers_alone(averaging_tokens(across=True)),
    foreign=foreign,
    reads_powers=True,
)


# ── what no key says ─────────────────────────────────────────────────────────────────────────────

_CANNOT: Final = {
    **CANNOT,
    **supervised(NAME),
    **only_answers(NAME),
    **reading_formats(
        "it reads lists of messages, or prompt and completion", "sharegpt", "prompt-completion"
    ),
    **{slot: Cannot("one process shards nothing") for slot in SLOTS if slot.startswith("fsdp.")},
    "fsdp.wrap_classes": Cannot("each module of a list is a unit"),
    "fsdp.min_parameters": Cannot("each module of a list is a unit"),
    **writing_text("its recipe"),
    "states.autocast": Cannot("its policy casts what FSDP gathers; autocast_dtype is not set"),
    "parallel.engine": Cannot("of one process it shards nothing"),
    "batch.accumulation": Cannot("global batch, micro batch and processes say it"),
    "schedule.keep_checkpoints": Cannot("before 0.6 every checkpoint is kept"),
    "schedule.warmup_share": Cannot("it is given the steps of a warm-up"),
    "runtime.report_to": Cannot("of trackers wandb is written", True, ((), ("wandb",))),
}
_REQUIRES: Final[Mapping[str, Any]] = {
    "activation_checkpointing.reentrant": False,
    "precision.tf32": False,
}
_WARMUP: Final = 10
"""The warmup steps, if neither the spec nor the length of a run determines them."""


def _needs(spec: Spec, draft: Draft) -> Mapping[str, Any]:
    """Pin FSDP 2 on several devices, torchrun, names of layers, and a warmup in steps."""
    if spec.objective.dpo is not None or spec.objective.answered is not None:
        return {}  # refused by the objective, and not for want of a layout
    starts = {} if spec.launcher else {"launch.launcher": "torchrun"}
    is_open = spec.train.steps is None and spec.data.samples is None
    rises = is_open and "warmup" not in spec.train.model_fields_set
    told = {
        **starts,
        "loss.path": "full",
        **layer_names(spec, draft, SAME_NAMES),
        **({"schedule.warmup_steps": _WARMUP} if rises else {}),
    }
    if "devices" not in draft.groups or spec.engine not in (None, "fsdp"):
        return told
    is_several = draft.devices.nodes * draft.devices.per_node > 1
    engine = {} if spec.engine else {"parallel.engine": "fsdp" if is_several else "none"}
    return {**told, **engine, **(ALWAYS_SO if is_several else {})}


_refusals: Final = refusing(NAME, REFUSALS)


def _check(plan: Plan, version: Version) -> Iterator[Diagnostic]:
    yield from _refusals(plan, version)
    yield from _unfollowed(plan)
    if version < Version("0.6") and plan.schedule.keep_checkpoints is not None:
        yield Diagnostic(
            "every-checkpoint-kept",
            "warning",
            f"{NAME} {version} keeps every checkpoint, and not {plan.schedule.keep_checkpoints}",
            help="name 0.6 or later in `software`, or see to the disk",
        )
    if version < Version("0.7") and evaluates(plan) and not _saves_where_it_evaluates(plan):
        yield Diagnostic(
            "evaluated-at-checkpoints",
            "note",
            f"{NAME} {version} evaluates at each checkpoint too",
            notes=(f"{NAME} 0.5.0 to 0.6.0 components/training/step_scheduler.py `is_val_step`",),
            help="name 0.7 or later in `software`, or save as often as it evaluates",
        )


def _saves_where_it_evaluates(plan: Plan) -> bool:
    """Whether each checkpoint follows an evaluation in any case, that of the last step left out."""
    saves, evaluated = plan.schedule.save_steps, plan.schedule.evaluation_steps
    return saves is not None and evaluated is not None and saves % evaluated == 0


def _unfollowed(plan: Plan) -> Iterator[Diagnostic]:
    """Warns of memory that the account does not model, in its adapters and recomputation."""
    adapts = (
        "its adapters keep less than PEFT's, of which the account is (components/_peft/lora.py: "
        "use_memory_efficient_lora)"
    )
    recomputes = (
        "where a layer has a frozen part alone, or the model no layers of transformers, it "
        "recomputes attention, feed-forward and norms apart, which keeps more (components/"
        "distributed/activation_checkpointing.py `apply_submodule_checkpointing`)"
    )
    notes = (
        *((adapts,) if has_adapter(plan) else ()),
        *((recomputes,) if recomputes_layers(plan) else ()),
    )
    if notes:
        yield Diagnostic(
            "account-of-the-plain-trainer",
            "note",
            f"the memory is counted without what {NAME} puts in place of parts",
            notes=notes,
        )


def entry(_: Plan, __: Dialect) -> tuple[str, ...]:
    """The module of its recipe, which torchrun starts."""
    return ("nemo_automodel.recipes.llm.train_ft", "--config", f"{NAME}/{CONFIG.name}")


def counting(dialect: Dialect, _: Mapping[str, Any]) -> Counting:
    """Of the samples, those are used that divide over all processes; the rest is a smaller step.

    nemo-automodel 0.5.0 to 0.7.0 components/training/step_scheduler.py: `epoch_len`; 0.5.0
    recipes/llm/train_ft.py `build_dataloader`, 0.6.0 to 0.7.0 components/datasets/loader.py
    `_make_sampler`: drop_last of the sampler, and not of the loader.
    """

    def steps(epoch: Epoch, epochs: float) -> int:
        batches = ceil((epoch.rows // epoch.processes) / epoch.micro)
        return int(epochs) * ceil(batches / epoch.accumulation)

    return Counting(f"{NAME} {dialect[NAME]}", steps, "buffered")


def records(plan: Plan) -> tuple[Record, ...]:
    """The accepted records: conversations by their template, or prompt and completion as text."""
    if plan.data.format == "prompt-completion":
        return (Record(("prompt", "completion"), "text"),)
    column = "conversations" if plan.data.format == "sharegpt" else "messages"
    return (Record((column,), "chat"),)


TARGET: Final = Target(
    name=NAME,
    package=NAME,
    supported=SUPPORTED,
    latest=RELEASES[-1],
    releases=RELEASES,
    files=(CONFIG, plain_template()),
    cannot=_CANNOT,
    requires=_REQUIRES,
    needs=_needs,
    takes_fsdp=True,
    check=_check,
    beside={"transformers": TRANSFORMERS, PEFT: PEFT_RELEASES},
    companions=installed_releases,
    entry=entry,
    run_by="trl",
    # recipes/base_recipe.py `load_checkpoint`: with no `restore_from`, the latest one
    goes_on=going_on(NAME, "checkpoint.restore_from", "checkpoint.enabled"),
    counting=counting,
    records=records,
    template_key=lambda *_: "dataset.chat_template",
    verify="tunec.targets.nemo_automodel.verify",
)
"""The target for the recipe of NeMo AutoModel."""
