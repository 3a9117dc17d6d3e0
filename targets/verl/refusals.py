"""Plans that verl does not run, or runs differently."""

from typing import Final

from packaging.version import Version

from tunec.compiler.ir.plan import Plan, training_data
from tunec.schemas.terms import BESIDE_TRAINING
from tunec.targets.rows import has_critic, is_supervised, writes_answers
from tunec.targets.scripts.refusals import Refusal, read_by_omegaconf, reading_text
from tunec.targets.verl.packages import SOURCE
from tunec.targets.verl.rewards import OWN_REWARD, engine_width, reward_of


def _is_no_parquet(plan: Plan) -> bool:
    evaluation = plan.data.evaluation
    names = (*training_data(plan), *((evaluation,) if evaluation else ()))
    return any(not each.endswith(".parquet") for each in names)


def _is_reward(names: tuple[str, ...]) -> bool:
    return len(names) == 1 and (names[0] == OWN_REWARD or reward_of(names[0]) is not None)


def _takes_flash(plan: Plan) -> bool:
    """Whether flash attention runs: on CUDA devices of capability 8.0 and above, in 16 bits."""
    capability = plan.devices.capability
    is_new = capability is None or Version(capability) >= _AMPERE
    return is_new and plan.precision.compute != "fp32"


_AMPERE: Final = Version("8.0")


_AVERAGES: Final = ("glm4v", "qwen2_vl", "qwen2_5_vl")
"""Families for which verl averages what the tower answers as if it were a tensor."""

_OTHER_HEADS: Final = (
    *("bloom", "codegen", "falcon", "gpt2", "gpt_neo", "gpt_neox", "gptj", "mpt", "opt"),
)
"""Families whose config has no `num_key_value_heads`: transformers 4.57.6 and 5.10.4, instances of
the classes."""


REFUSALS: Final = (
    reading_text(f"{SOURCE} utils/dataset/multiturn_sft_dataset.py, rl_dataset.py"),
    Refusal(
        ("model.family",),
        "samples of text alone end the run: it sends an image of zeros through the tower, and what "
        "the tower answers in transformers 5 has no mean: AttributeError",
        lambda plan: plan.model.family in _AVERAGES,
        "verl 0.9.0 to 0.9.1 models/transformers/qwen2_vl.py, glm4v.py `_get_input_embeds`",
        "set `software: {verl: 0.8.0}` for Qwen-VL, or compile to trl",
        since="0.9",
    ),
    Refusal(
        ("model.family",),
        "it makes positions of one kind for its samples, and asks its own forward pass for four: "
        "ValueError",
        lambda plan: is_supervised(plan) and plan.model.family == "glm4v",
        f"{SOURCE} utils/dataset/multiturn_sft_dataset.py `__getitem__`; models/transformers/"
        "glm4v.py `process_position_ids`",
        "compile to trl",
    ),
    Refusal(
        ("model.family",),
        "it asks a model's config for num_key_value_heads, which this family's has not: "
        "AttributeError",
        lambda plan: plan.model.family in _OTHER_HEADS,
        f"{SOURCE} models/transformers/monkey_patch.py `apply_monkey_patch`",
        "compile to trl",
    ),
    *read_by_omegaconf(
        *("data.train", "data.evaluation", "model.path", "runtime.output", "objective.rewards"),
        *("adapter.targets", "ppo.critic"),
    ),
    Refusal(
        ("parallel.engine",),
        "it trains under FSDP, on one device too",
        lambda plan: plan.parallel.engine in ("ddp", "deepspeed"),
        f"{SOURCE} workers/engine/fsdp/transformer_impl.py `_build_fsdp_module`",
        "set `engine: fsdp`, or leave it out",
    ),
    Refusal(
        ("launch.launcher",),
        "its trainer of given texts joins the processes that torchrun starts, one process too",
        lambda plan: is_supervised(plan) and plan.launch.launcher != "torchrun",
        f"{SOURCE} utils/distributed.py `initialize_global_process_group`",
        "set `launcher: torchrun`, or leave it out",
    ),
    Refusal(
        ("launch.launcher",),
        "its program is one process, which starts the others by Ray",
        lambda plan: writes_answers(plan) and plan.launch.launcher != "python",
        f"{SOURCE} trainer/main_ppo.py `run_ppo`",
        "set `launcher: python`, or leave it out",
    ),
    Refusal(
        ("generation.engine",),
        "vLLM or SGLang writes the answers, on the devices that train",
        lambda plan: writes_answers(plan) and plan.generation.engine not in BESIDE_TRAINING,
        f"{SOURCE} workers/rollout/base.py `get_rollout_class`",
        "set `generator: vllm_colocate` under the objective",
    ),
    Refusal(
        ("generation.device_share",),
        "the engine's share has no room for the weights, were they split over a whole node",
        lambda plan: (
            writes_answers(plan) and plan.generation.device_share > 0 and engine_width(plan) is None
        ),
        f"{SOURCE} workers/rollout/vllm_rollout/vllm_async_server.py: gpu_memory_utilization is of "
        "the whole device, weights included",
        "raise `device_share` under the objective",
    ),
    Refusal(
        ("objective.rewards",),
        "it takes one function: `score.py:function` by its file, `package.module.function`, or "
        "`default_compute_score`, its own",
        lambda plan: writes_answers(plan) and not _is_reward(plan.objective.rewards),
        f"{SOURCE} trainer/ppo/reward.py `get_custom_reward_fn`",
        "name one function that adds the rewards",
    ),
    Refusal(
        ("objective.loss",),
        "no loss of it is averaged over the tokens of a local batch",
        lambda plan: plan.objective.loss == "bnpo",
        f"{SOURCE} trainer/ppo/core_algos.py `agg_loss`",
        "set `objective.grpo.loss: dapo`",
    ),
    Refusal(
        ("devices.capability", "precision.compute"),
        "it loads the critic with flash attention, for devices since Ampere and in 16 bits",
        lambda plan: has_critic(plan) and not _takes_flash(plan),
        f"{SOURCE} utils/model.py `load_valuehead_model`; flash-attn 2.8.3 README.md",
        "use other devices, or set `objective: {grpo: {rewards: [...]}}`, which has no critic",
    ),
    Refusal(
        ("batch.global", "parallel.data"),
        "the answers of a step do not divide among the devices",
        lambda plan: writes_answers(plan) and plan.batch.global_ % plan.parallel.world != 0,
        f"{SOURCE} utils/config.py `validate_config`",
        "set a multiple of the devices as `batch.global`",
    ),
    Refusal(
        ("data.train",),
        "it reads Parquet files: conversations in a column `messages`, or prompts in `prompt`",
        _is_no_parquet,
        f"{SOURCE} utils/dataset/multiturn_sft_dataset.py `_read_files_and_process`",
        "write the data to Parquet (`datasets.Dataset.to_parquet`), and name files ending in "
        ".parquet",
    ),
    Refusal(
        ("optimizer.max_grad_norm",),
        "it always clips gradients, and at a norm of 0 none is left",
        lambda plan: plan.optimizer.max_grad_norm == 0,
        f"{SOURCE} workers/engine/fsdp/transformer_impl.py `optimizer_step`",
        "set `train.optimizer.max_grad_norm` above 0",
    ),
)
