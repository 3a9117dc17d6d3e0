"""Plans that SimpleTuner refuses, or runs differently from what its keys suggest.

Each rule was seen in a run of the real code (tests/consumers/test_simpletuner.py), most of them
long after parsing: the parser itself accepts adamw_bf16 with fp16, and LoRA with a DeepSpeed
configuration.
"""

from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct
from packaging.version import Version

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import joined
from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import on_deepspeed
from tunec.targets.deepspeed.scheduler import is_known
from tunec.targets.rows import on_fsdp
from tunec.targets.simpletuner.families import (
    LAST_READ_BEFORE,
    SANA_ENDS,
    edits,
    flavour_of,
    of_model,
)
from tunec.targets.simpletuner.rows.schedule import KINDS, lacks_steps


class Rule(Struct, frozen=True):
    """One combination that SimpleTuner does not run."""

    breaks: Callable[[Plan], bool]
    text: str
    slots: tuple[str, ...]
    help: str
    source: str


BY_DEEPSPEED: Final = ("adamw", "lion", "muon")
"""helpers/training/deepspeed_optimizers.py `SUPPORTED_OPTIMIZERS`, 3.1.6 and 4.10.1."""

NEVER: Final = 1_000_000
"""An interval that no run reaches: its key knows no other word for a run without checkpoints."""
_SAVES_ALONE: Final = (
    "simpletuner 3.1.6 to 4.10.1 helpers/training/save_hooks.py `save_model_hook` returns on all "
    "ranks but the first, which then waits for them in `_save_full_model`; seen in runs of two "
    "ranks under DDP and DeepSpeed"
)


BY_FSDP: Final = ("adamw", "sgd")
"""helpers/training/optimizer_param.py `FSDP2_INCOMPATIBLE_PREFIXES`, 3.1.6 and 4.10.1: `optimi-`
and `bnb-` are replaced. adamw_bf16 asserts bf16 parameters, and accelerate makes them fp32 (seen in
a run of two ranks)."""
WHOLE: Final = Version("4.5.2")
"""The first release that gathers the shards before it saves a model in full (helpers/training/
save_hooks.py `_materialize_fsdp2_state_dict_for_save`; absent in tag v4.5.1)."""


def _saves_alone(plan: Plan) -> bool:
    """Whether a checkpoint leaves the ranks one collective operation apart.

    Under FSDP 2 accelerate writes it, with all ranks (4.10.1 `save_model_hook`; seen in runs).
    """
    return plan.adapter.kind == "none" and plan.parallel.world > 1 and not on_fsdp(plan)


def _passes_over(plan: Plan) -> bool:
    """Whether FSDP recomputes, and segments are planned, which only the model's own hooks make."""
    asked = plan.activation_checkpointing
    return plan.fsdp.checkpointing and (asked.segment != 1 or asked.gap > 0 or asked.offload)


def _saves_on_the_way(plan: Plan) -> bool:
    every, length = plan.schedule.save_steps, plan.schedule.steps or NEVER - 1
    return every is None or every <= length


RULES: Final = (
    Rule(
        lambda plan: _saves_alone(plan) and _saves_on_the_way(plan),
        "full training on several ranks hangs once it has written a checkpoint",
        ("schedule.save_steps", "adapter.kind", "parallel.world"),
        "use `engine: fsdp`, whose checkpoints are written by all ranks; or leave "
        "train.checkpoints out, so that weights are saved at the end alone",
        _SAVES_ALONE,
    ),
    Rule(
        lambda plan: plan.adapter.kind == "none" and plan.zero.stage == 3 and on_deepspeed(plan),
        "what it saves at the end under ZeRO 3 are the first rank's empty tensors",
        ("adapter.kind", "zero.stage"),
        "use `engine: fsdp`, or ZeRO 2, on the host if need be",
        "simpletuner 3.1.6 to 4.10.1 helpers/training/trainer.py `train`: `unwrap_model` and "
        "`save_pretrained` on the main process alone, and nothing gathers the parameters; seen in "
        "a run of two ranks",
    ),
    Rule(
        lambda plan: on_fsdp(plan) and plan.optimizer.name not in BY_FSDP,
        "under FSDP it steps fp32 shards, by torch's own optimizers or adamw_schedulefree",
        ("optimizer.name", "parallel.engine"),
        "use adamw or sgd, or `engine: ddp`",
        "helpers/training/optimizer_param.py determine_optimizer_class_with_config",
    ),
    Rule(
        lambda plan: on_fsdp(plan) and plan.fsdp.version == 1,
        "it saves what a rank has of FSDP 1 as if that were the model",
        ("fsdp.version",),
        "use FSDP 2",
        "simpletuner 4.10.1 helpers/training/save_hooks.py `_is_fsdp2`: all that gathers shards",
    ),
    Rule(
        lambda plan: plan.fsdp.offload_params and plan.optimizer.max_grad_norm > 0,
        "gradients on the host are not clipped: NCCL, its only backend, exchanges none of them, "
        "and the failure is logged",
        ("fsdp.offload_params", "optimizer.max_grad_norm"),
        "leave the shards on the devices, or train without a norm to clip to",
        "simpletuner 4.10.1 helpers/training/trainer.py `train`: 'FSDP2 gradient clipping failed'; "
        "accelerate 1.15.0 state.py `PartialState`: gloo beside NCCL by FSDP_OFFLOAD_PARAMS alone",
    ),
    Rule(
        _passes_over,
        "FSDP recomputes each of its units, whatever the segments of the model are",
        ("activation_checkpointing.segment", "activation_checkpointing.gap"),
        "pin fsdp.checkpointing to false, or leave the segments out",
        "helpers/training/trainer.py `_load_fsdp_plugin`: gradient_checkpointing is turned off",
    ),
    Rule(
        lambda plan: plan.optimizer.name == "adamw_bf16" and plan.precision.compute != "bf16",
        "adamw_bf16 steps bf16 parameters only ('only bfloat 16 is supported.')",
        ("optimizer.name", "precision.compute"),
        "compute in bf16, or use adamw",
        "helpers/training/optimizers/adamw_bfloat16/__init__.py:64; the parser's own check reads a "
        "key that is never there (cmd_args.py, default_settings.precision)",
    ),
    Rule(
        lambda plan: plan.precision.compute == "fp16",
        "its trained parameters are fp16 then, whose gradients torch's GradScaler does not unscale",
        ("precision.compute",),
        "compute in bf16 or fp32",
        "cmd_args.py weight_dtype; torch/amp/grad_scaler.py _unscale_grads_",
    ),
    Rule(
        lambda plan: plan.adapter.kind == "lora" and plan.parallel.engine == "deepspeed",
        "it ends with 'LoRA can not be trained with DeepSpeed'",
        ("adapter.kind", "parallel.engine"),
        "use `engine: ddp`, or train the model itself",
        "helpers/training/error_handling.py validate_deepspeed_compat_from_args",
    ),
    Rule(
        lambda plan: plan.adapter.kind == "none" and plan.quantization.format != "none",
        "it ends with 'full tuning is not compatible with quantisation'",
        ("adapter.kind", "quantization.format"),
        "train adapters, or keep the base in its own dtype",
        "helpers/training/default_settings/safety_check.py",
    ),
    Rule(
        lambda plan: (
            plan.parallel.engine == "deepspeed" and plan.optimizer.name not in BY_DEEPSPEED
        ),
        "it puts AdamW in the place of this optimizer in DeepSpeed's file",
        ("optimizer.name", "parallel.engine"),
        "use adamw, lion or muon, or `engine: ddp`",
        "helpers/training/deepspeed_optimizers.py SUPPORTED_OPTIMIZERS",
    ),
    Rule(
        lambda plan: not on_deepspeed(plan) and plan.schedule.kind not in KINDS,
        f"its --lr_scheduler can say {joined(KINDS)}",
        ("schedule.kind",),
        "use constant_with_warmup, or linear",
        "helpers/training/custom_schedule.py get_lr_scheduler",
    ),
    Rule(
        lambda plan: plan.data.samples is not None and plan.data.samples < plan.batch.global_,
        "it ends with 'Dataset configuration will produce zero usable batches'",
        ("data.samples", "batch.global"),
        "give a smaller batch.global, or train on each image several times: "
        "`train: [{path: ..., times: 2}]`",
        "helpers/metadata/backends/base.py split_buckets_between_processes",
    ),
    Rule(
        lambda plan: plan.data.images > 1 and not plan.data.references,
        "this model needs a reference image for each training image, and no folder has them",
        ("data.images", "data.references"),
        "name it: `references: [before]` under `data`",
        "helpers/models/qwen_image/model.py and helpers/models/flux/model.py "
        "`requires_conditioning_dataset`",
    ),
    Rule(
        lambda plan: bool(plan.data.references) and not edits(plan.model),
        "its flavour decides whether a model edits, and the weights of a local copy do not tell it",
        ("model.path", "data.references"),
        "name the model by its repository",
        "simpletuner 4.10.1 helpers/models/common.py setup_model_flavour; helpers/models/flux/"
        "model.py and qwen_image/model.py: what depends on `model_flavour`",
    ),
    Rule(
        lambda plan: bool(plan.data.references and (plan.data.more or plan.data.evaluation)),
        "each data set needs its own reference images, and data.references belong to one alone",
        ("data.references", "data.more", "data.evaluation"),
        "keep the training images in one folder, without an evaluation",
        "helpers/data_backend/factory.py `_connect_conditioning_datasets`",
    ),
    Rule(
        lambda plan: bool(plan.data.frames and plan.data.evaluation),
        "only data sets of the type video are cut to a number of frames, and those for evaluation "
        "are of another type",
        ("data.frames", "data.evaluation"),
        "remove data.evaluation",
        "helpers/data_backend/factory.py init_backend_config, `has_video_config`",
    ),
    Rule(
        lambda plan: not is_known(plan) if on_deepspeed(plan) else lacks_steps(plan),
        "its schedules count steps, and how many there are depends on the shapes of the pictures",
        ("schedule.kind", "schedule.warmup_share"),
        "give train.steps, or train.schedule constant_with_warmup and train.warmup in steps",
        "helpers/training/custom_schedule.py get_lr_scheduler; helpers/metadata/backends/"
        "discovery.py `__len__`: a bucket of each shape has batches of its own",
    ),
)


def _of_release(version: Version) -> Iterator[Rule]:
    """What a release lacks, whatever the family."""
    if version < WHOLE:
        yield Rule(
            on_fsdp,
            "at the end the main process saves its own shards as if they were the model",
            ("parallel.engine",),
            f"request simpletuner {WHOLE} or later",
            "helpers/training/trainer.py `train` of tags v3.1.6, v4.4.1 and v4.5.1",
        )


def _of_family(plan: Plan, version: Version) -> Iterator[Rule]:
    """What a release lacks of a family, or its code does not do whatever the flags are."""
    family, known = of_model(plan.model), flavour_of(plan.model)
    if family is None:
        return
    if not family.holds_at(version):
        yield Rule(
            lambda _: True,
            f"this release has no family {family.name}",
            ("model.path",),
            f"`targets: [simpletuner@{LAST_READ_BEFORE}]`, or another release before {family.until}"
            if family.until is not None
            else f"request simpletuner {family.since} or later",
            "helpers/models/registry.py ModelRegistry.model_families",
        )
    flavour = known[1] if known is not None else ""
    if flavour in family.distinct and not family.knows(flavour, version):
        yield Rule(
            lambda _: True,
            f"this release has no flavour {flavour}, and trains it as another one",
            ("model.path",),
            f"request simpletuner {family.added[flavour]} or later",
            "helpers/models/common.py setup_model_flavour",
        )
    yield from _of_name(family.name, version)


_EIGHTS: Final = frozenset({"wan", "ltxvideo"})
"""Families whose clips have one frame more than a multiple of eight, among those planned."""
_ROUNDS: Final = Version("4.0.0")
"""The first release that rounds; 3.3.4 trains on as many frames as are asked for."""


def _of_name(family: str, version: Version) -> Iterator[Rule]:
    if family == "sana" and version >= Version(SANA_ENDS):
        yield Rule(
            lambda _: True,
            "it encodes captions with a pipeline that it gives no scheduler",
            ("model.path",),
            "`targets: [simpletuner@4.3.4]`",
            "helpers/models/common.py _load_pipeline and helpers/models/sana/model.py "
            "requires_special_scheduler_setup",
        )
    if family in _EIGHTS and version >= _ROUNDS:
        yield Rule(
            lambda plan: plan.data.frames % 8 > 1,
            "it takes the first frame of this family's clips, and then eight at a time",
            ("data.frames",),
            "write a number that is one more than a multiple of 8, such as 49 or 81",
            "simpletuner 4.0.0 and 4.10.1 helpers/metadata/backends/base.py "
            "meets_resolution_requirements; helpers/models/wan/model.py and helpers/models/"
            "ltxvideo/model.py adjust_video_frames",
        )
    if family == "pixart":
        yield Rule(
            lambda plan: plan.adapter.kind != "none",
            "it saves no LoRA weights of PixArt: checkpoints lack them, and the end is an error",
            ("model.path", "adapter.kind"),
            "`method: full`, or another model",
            "simpletuner 4.0.6 and 4.10.1 helpers/models/pixart/model.py save_lora_weights",
        )


def check(plan: Plan, version: Version) -> Iterator[Diagnostic]:
    """An error for every rule that the plan breaks; RULES hold in every known version."""
    for rule in (*RULES, *_of_release(version), *_of_family(plan, version)):
        if rule.breaks(plan):
            yield Diagnostic(
                "E0905",
                "error",
                f"simpletuner {version} does not run this plan: {rule.text}",
                tuple(Label(f"{slot} is {plan[slot]}", path=slot) for slot in rule.slots),
                (rule.source,),
                help=rule.help,
            )
    if _saves_alone(plan) and not _saves_on_the_way(plan):
        yield Diagnostic(
            "checkpoints-left-out",
            "warning",
            f"the run writes its weights at the end alone: simpletuner {version} hangs after a "
            "checkpoint of full training on several ranks",
            (Label("a step that is never reached", path="schedule.save_steps"),),
            (_SAVES_ALONE,),
        )
