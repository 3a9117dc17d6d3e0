"""Plans that NeMo AutoModel does not run, or runs differently."""

from typing import Final

from tunec.compiler.ir.plan import Plan, training_data
from tunec.schemas.data_paths import is_local
from tunec.targets.nemo_automodel.model import wildcard_of
from tunec.targets.nemo_automodel.packages import SOURCE
from tunec.targets.rows import has_adapter, is_quantised, on_fsdp, recomputes_layers
from tunec.targets.scripts.refusals import Refusal, reading_text

_BUILDS: Final = f"{SOURCE} recipes/llm/train_ft.py `setup`"


def _mixes(plan: Plan) -> bool:
    parts = training_data(plan)
    return len(parts) > 1 and not all(map(is_local, parts))


_WHOLE: Final = ("gemma3", "gemma3n", "gemma4", "gemma4_unified")
"""Families that see and that `AutoModelForCausalLM` loads as a whole: transformers 5.8.1 to 5.18.0
models/auto/modeling_auto.py `MODEL_FOR_CAUSAL_LM_MAPPING_NAMES`."""

_OF_ITS_OWN: Final = ("mistral3", "qwen3_5", "qwen3_5_moe", "qwen3_vl", "qwen3_vl_moe")
"""Further families that see and for which it has a class: the registry of 0.7.0."""


def _is_seeing(plan: Plan) -> bool:
    return plan.model.kind == "vision-language" and plan.model.family not in _WHOLE


_OF_CONV1D: Final = ("gpt2",)
"""Families whose layers are transformers' Conv1D: models/gpt2/modeling_gpt2.py."""

_JOINT: Final = ("qkv_proj", "gate_up_proj")
"""Joint layers, as whose parts it names them; the weights keep the name of the whole."""


def _adapts_joint_layers(plan: Plan) -> bool:
    targets = plan.adapter.targets
    names = () if isinstance(targets, str) else targets
    return has_adapter(plan) and any(name.rpartition(".")[2] in _JOINT for name in names)


_OWN_CLASSES: Final = "0.7"
_LOSES_A_PART: Final = Refusal(
    ("model.family",),
    "AutoModelForCausalLM, by which it loads, does not know this family, or takes its text "
    "alone, and another model is saved than is planned",
    _is_seeing,
    f"{_BUILDS}: NeMoAutoModelForCausalLM; transformers 5.8.1 to 5.18.0 models/auto/"
    "auto_factory.py: `get_text_config`",
    "compile to trl",
)

REFUSALS: Final = (
    reading_text(f"{SOURCE} components/datasets/llm/chat_dataset.py `ChatDataset`"),
    _LOSES_A_PART._replace(until=_OWN_CLASSES),
    _LOSES_A_PART._replace(
        holds=lambda plan: _is_seeing(plan) and plan.model.family not in _OF_ITS_OWN,
        since=_OWN_CLASSES,
    ),
    Refusal(
        ("model.family",),
        "it builds this family by a class of its own, whose layers and further heads are in no "
        "account",
        lambda plan: _is_seeing(plan) and plan.model.family in _OF_ITS_OWN,
        "nemo-automodel 0.7.0 _transformers/registry.py `MODEL_ARCH_MAPPING`, model_init.py "
        "`get_is_hf_model`",
        "compile to trl",
        since=_OWN_CLASSES,
    ),
    Refusal(
        ("parallel.engine",),
        "it is written for its strategy fsdp2, and shards nothing of one process",
        lambda plan: plan.parallel.engine not in ("fsdp", "none"),
        f"{SOURCE} components/distributed/config.py `DistributedSetup`",
        "set `engine: fsdp`, or leave it out",
    ),
    Refusal(
        ("parallel.sequence", "parallel.tensor"),
        "no account is kept of what its context and tensor parallelism split",
        lambda plan: plan.parallel.sequence > 1 or plan.parallel.tensor > 1,
        f"{SOURCE} components/distributed/context_parallel",
        "leave both at 1",
    ),
    Refusal(
        ("launch.launcher",),
        "its recipe joins the processes that torchrun starts, one process too",
        lambda plan: plan.launch.launcher != "torchrun",
        f"{SOURCE} components/distributed/init_utils.py `initialize_distributed`",
        "set `launcher: torchrun`, or leave it out",
    ),
    Refusal(
        ("precision.compute",),
        "it computes in bf16 over shards, and of one process in the dtype that it is loaded in",
        lambda plan: (
            plan.precision.compute == "fp16" or (on_fsdp(plan) and plan.precision.compute != "bf16")
        ),
        f"{SOURCE} components/distributed/config.py `FSDP2Config`: mp_policy",
        "set `precision: bf16`",
    ),
    Refusal(
        ("activation_checkpointing.mode",),
        "before 0.6 it recomputes layers by torch's reentrant variant, which is not planned for it",
        recomputes_layers,
        "nemo-automodel 0.5.0 components/distributed/parallelizer.py: use_reentrant",
        "set `software: {nemo-automodel: 0.7.0}`",
        until="0.6",
    ),
    Refusal(
        ("data.packing",),
        "what it packs is kept apart by TransformerEngine's attention, or by its own neat packing, "
        "of which no account is kept",
        lambda plan: plan.data.packing,
        f"{SOURCE} components/datasets/llm/packed_sequence.py; recipes/llm/train_ft.py "
        "`packing_strategy`",
        "leave `data.packing` out",
    ),
    Refusal(
        ("data.train", "data.more"),
        "it joins files, and no data sets of the hub",
        _mixes,
        f"{SOURCE} components/datasets/llm/chat_dataset.py `_load_openai_messages`",
        "download them, and name the files",
    ),
    Refusal(
        ("optimizer.name", "optimizer.kernel"),
        "of its optimizers torch's AdamW is planned: `foreach`, or `fused`",
        lambda plan: (
            plan.optimizer.name != "adamw" or plan.optimizer.kernel not in ("foreach", "fused")
        ),
        f"{SOURCE} components/optim/optimizer.py",
        "leave `train.optimizer.name` out",
    ),
    Refusal(
        ("optimizer.max_grad_norm",),
        "it always clips gradients, and at a norm of 0 none is left",
        lambda plan: plan.optimizer.max_grad_norm == 0,
        f"{_BUILDS}: clip_grad_norm",
        "set `train.optimizer.max_grad_norm` above 0",
    ),
    Refusal(
        ("schedule.kind",),
        "its scheduler has constant, linear and cosine rates",
        lambda plan: (
            plan.schedule.kind
            not in ("constant", "constant_with_warmup", "linear", "cosine", "cosine_with_min_lr")
        ),
        f"{SOURCE} components/optim/scheduler.py `OptimizerParamScheduler.get_lr`",
        "choose one of these as `train.schedule`",
    ),
    Refusal(
        ("schedule.warmup_steps", "schedule.steps"),
        "the rate has to fall, or stay, after it has risen: AssertionError",
        lambda plan: (
            plan.schedule.steps is not None
            and plan.schedule.kind != "constant"
            and (plan.schedule.warmup_steps or 0) >= plan.schedule.steps
        ),
        f"{SOURCE} components/optim/scheduler.py `OptimizerParamScheduler.__init__`",
        "set fewer steps as `train.warmup`",
    ),
    Refusal(
        ("adapter.dora", "parallel.engine"),
        "of several processes it makes the magnitudes of DoRA before the weights are there, and "
        "never again: the loss is NaN",
        lambda plan: plan.adapter.dora and on_fsdp(plan) and not is_quantised(plan),
        f"{SOURCE} components/_peft/lora.py `init_lora_weights`; _transformers/auto_model.py: "
        "is_meta_device",
        "leave `dora` out, or train on one device (`devices: {count: 1}`)",
    ),
    Refusal(
        ("model.family", "adapter.kind"),
        "it adapts linear layers, and those of this family are transformers' Conv1D: ValueError, "
        "since nothing is left to train",
        lambda plan: has_adapter(plan) and plan.model.family in _OF_CONV1D,
        f"{SOURCE} components/_peft/module_matcher.py `_is_linear_module`",
        "set `method: full`, or compile to trl",
    ),
    Refusal(
        ("adapter.targets",),
        "the adapter_config.json that it saves names the parts of a joint layer, which this model "
        "does not have: PEFT loads the adapter without these layers",
        _adapts_joint_layers,
        f"{SOURCE} components/checkpoint/addons.py `_extract_target_modules`: {', '.join(_JOINT)}",
        "list other layers as `method.lora.targets`, or compile to trl",
    ),
    Refusal(
        ("adapter.targets",),
        "its targets are names and wildcards, and no regular expression",
        lambda plan: (
            has_adapter(plan)
            and isinstance(plan.adapter.targets, str)
            and wildcard_of(plan.adapter.targets) is None
        ),
        f"{SOURCE} components/_peft/module_matcher.py `wildcard_match`",
        "list names of layers as `method.lora.targets`",
    ),
)
