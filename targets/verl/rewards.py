"""Rows for `main_ppo` alone: prompts, answers, rewards, the loop."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan, training_data
from tunec.compiler.target import Entry, Json, constant, derived, fixed, same
from tunec.targets.rows import row
from tunec.targets.verl.packages import SOURCE
from tunec.targets.verl.training import lasting, limits, logging, read_evaluation, read_files

ACTOR: Final = "actor_rollout_ref.actor"
REFERENCE: Final = "actor_rollout_ref.ref"
ROLLOUT: Final = "actor_rollout_ref.rollout"
_YAML: Final = f"{SOURCE} trainer/config/ppo_trainer.yaml"
_ACTOR: Final = f"{SOURCE} workers/config/actor.py `ActorConfig`"
_ROLLOUT: Final = f"{SOURCE} workers/config/rollout.py `RolloutConfig`"
_WORKER: Final = f"{SOURCE} workers/engine_workers.py `ActorRolloutRefWorker`"
_LOOP: Final = (
    "verl 0.8.0 trainer/ppo/ray_trainer.py `RayPPOTrainer`, 0.9.0 to 0.9.1 "
    "trainer/ppo/v1/trainer_base.py `PPOTrainer`"
)
_PROMPTS: Final = f"{SOURCE} utils/dataset/rl_dataset.py `RLHFDataset`"


# ── data and batches ─────────────────────────────────────────────────────────────────────────────


def _write_held_out(plan: Plan) -> Mapping[str, Json]:
    """Write the evaluation data, which the loader requires, and -1 if no step evaluates."""
    held_out, steps = plan.data.evaluation, plan.schedule.evaluation_steps
    files: Json = held_out if held_out is not None else [*training_data(plan)]
    return {"data.val_files": files, "trainer.test_freq": steps or -1}


def _read_held_out(found: Mapping[str, Json]) -> Mapping[str, Any]:
    asked = read_evaluation(found.get("trainer.test_freq", -1))
    if asked.get("schedule.evaluation_steps") is None:
        return {**asked, "data.evaluation": None}
    files = found.get("data.val_files")
    return {**asked, "data.evaluation": files} if isinstance(files, str) else asked


_PROMPT_DATA: Final = (
    limits(_PROMPTS),
    row(
        ("data.train_files",),
        ("data.train", "data.more"),
        lambda plan: {"data.train_files": [*training_data(plan)]},
        lambda found: read_files(found["data.train_files"]),
        f"{_PROMPTS} `_read_files_and_tokenize`",
    ),
    row(
        ("data.val_files", "trainer.test_freq"),
        ("data.evaluation", "schedule.evaluation_steps"),
        _write_held_out,
        _read_held_out,
        f"{_LOOP}: the data set of `val_files` is always made, and asked every `test_freq` steps",
        absent={"data.evaluation": None, "schedule.evaluation_steps": None},
    ),
    constant("trainer.val_before_train", False, f"{_LOOP} `fit`"),
    constant(
        "data.filter_overlong_prompts", True, f"{_PROMPTS}: else a longer prompt ends the run"
    ),
    same("data.seed", "runtime.seed", f"{SOURCE} trainer/ppo/utils.py `create_rl_sampler`"),
    same("data.dataloader_num_workers", "runtime.dataloader_workers", _YAML, default=8),
    fixed("runtime.dataloader_pin_memory", value=False, source=_LOOP),
    fixed("data.packing", value=False, source=f"{_PROMPTS}: a prompt by itself"),
)


def _read_lengths(found: Mapping[str, Json]) -> Mapping[str, Any]:
    prompt = found.get("data.max_prompt_length", 512)
    answer = found.get("data.max_response_length", 512)
    if not isinstance(prompt, int) or not isinstance(answer, int):
        return {}
    return _lengths(prompt, answer)


def _lengths(prompt: int, answer: int) -> Mapping[str, Any]:
    return {
        "generation.prompt": prompt,
        "generation.completion": answer,
        "data.sequence": prompt + answer,
    }


_BATCH: Final = (f"{ACTOR}.ppo_mini_batch_size", f"{ROLLOUT}.n")


def _prompts(plan: Plan) -> int:
    """The prompts of a batch: each step trains on all of its answers."""
    return plan.batch.global_ // max(plan.generation.samples, 1)


def _write_batch(plan: Plan) -> Mapping[str, Json]:
    return dict(zip(_BATCH, (_prompts(plan), plan.generation.samples), strict=True))


def _read_batch(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The answers of one optimizer step."""
    each, samples = found.get(_BATCH[0], 256), found.get(_BATCH[1], 1)
    if not isinstance(each, int) or not isinstance(samples, int):
        return {}
    return {"generation.samples": samples, "batch.global": each * samples}


_MICRO: Final = f"{ACTOR}.ppo_micro_batch_size_per_gpu"

_BATCHES: Final = (
    row(
        ("data.max_prompt_length", "data.max_response_length"),
        tuple(_lengths(0, 0)),
        lambda plan: {
            "data.max_prompt_length": plan.generation.prompt,
            "data.max_response_length": plan.generation.completion,
        },
        _read_lengths,
        _YAML,
        absent=_lengths(512, 512),
    ),
    row(
        _BATCH,
        ("batch.global", "generation.samples"),
        _write_batch,
        _read_batch,
        f"{_LOOP} `_update_actor`: mini batches of `ppo_mini_batch_size` times `n` answers",
        absent={"generation.samples": 1},
    ),
    derived(
        "data.train_batch_size",
        _prompts,
        f"{_LOOP}: the answers to so many prompts are there for as many steps as need them",
    ),
    row(
        (_MICRO,),
        ("batch.micro",),
        lambda plan: {_MICRO: plan.batch.micro},
        lambda found: {"batch.micro": found[_MICRO]} if isinstance(found[_MICRO], int) else {},
        f"{_ACTOR} `__post_init__`",
    ),
    *(
        derived(
            f"{each}.log_prob_micro_batch_size_per_gpu",
            lambda plan: plan.batch.micro,
            f"{SOURCE} utils/config.py `validate_config`: scored as many at a time as trained",
        )
        for each in (ROLLOUT, REFERENCE)
    ),
    constant(f"{ACTOR}.use_dynamic_bsz", False, f"{_ACTOR}: else by tokens and not by answers"),
)


# ── the objective ────────────────────────────────────────────────────────────────────────────────

_AVERAGES: Final[Mapping[Any, str]] = {
    "grpo": "seq-mean-token-mean",
    "dapo": "token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
}
"""core_algos.py `agg_loss`: the mean over the tokens of the mini batch, or the answer's length."""
_LOSS: Final = f"{ACTOR}.loss_agg_mode"
ESTIMATOR: Final = "algorithm.adv_estimator"
USES_KL, KL, KL_KIND = (
    f"{ACTOR}.{name}" for name in ("use_kl_loss", "kl_loss_coef", "kl_loss_type")
)


def _write_average(plan: Plan) -> Mapping[str, Json]:
    word = _AVERAGES.get(plan.objective.loss)
    return {} if word is None else {_LOSS: word}


def _read_average(found: Mapping[str, Json]) -> Mapping[str, Any]:
    named = [loss for loss, word in _AVERAGES.items() if word == found[_LOSS]]
    return {"objective.loss": named[0]} if named else {}


def _write_distance(plan: Plan) -> Mapping[str, Json]:
    beta = plan.objective.beta
    return {USES_KL: True, KL: beta, KL_KIND: "low_var_kl"} if beta else {USES_KL: False}


def _read_distance(found: Mapping[str, Json]) -> Mapping[str, Any]:
    if found.get(USES_KL) is not True:
        return {"objective.beta": 0.0}
    if found.get(KL_KIND, "low_var_kl") != "low_var_kl":
        return {}
    beta = found.get(KL, 0.001)
    return {"objective.beta": float(beta)} if isinstance(beta, int | float) else {}


OWN_REWARD: Final = "default_compute_score"
"""verl's own function, chosen by the column `data_source`: utils/reward_score/__init__.py."""
_FUNCTION: Final = tuple(f"reward.custom_reward_function.{name}" for name in ("path", "name"))
_PACKAGE: Final = "pkg://"


def reward_of(name: str) -> tuple[str, str] | None:
    """The module and function of a reward: `score.py:compute`, or `package.module.compute`."""
    path, _, function = name.rpartition(":")
    if path.endswith(".py") and function.isidentifier():
        return path, function
    module, _, function = name.rpartition(".")
    return (f"{_PACKAGE}{module}", function) if module and ":" not in name else None


def _write_rewards(plan: Plan) -> Mapping[str, Json]:
    found = [reward_of(each) for each in plan.objective.rewards]
    return (
        {} if len(found) != 1 or found[0] is None else dict(zip(_FUNCTION, found[0], strict=True))
    )


def _read_rewards(found: Mapping[str, Json]) -> Mapping[str, Any]:
    path, name = (found.get(key) for key in _FUNCTION)
    if not isinstance(path, str):
        return {"objective.rewards": (OWN_REWARD,)}
    name = name if isinstance(name, str) else "compute_score"
    if path.startswith(_PACKAGE):
        module = path.removeprefix(_PACKAGE).replace("/", ".")
        return {"objective.rewards": (f"{module}.{name}",)}
    return {"objective.rewards": (f"{path.removeprefix('file://')}:{name}",)}


_REWARD: Final = row(
    _FUNCTION,
    ("objective.rewards",),
    _write_rewards,
    _read_rewards,
    f"{SOURCE} trainer/ppo/reward.py `get_custom_reward_fn`; utils/import_utils.py `load_module`",
    absent={"objective.rewards": (OWN_REWARD,)},
)

_OBJECTIVE: Final = (
    row(
        (ESTIMATOR,),
        ("objective.kind",),
        lambda _: {ESTIMATOR: "grpo"},
        lambda found: {"objective.kind": "grpo"} if found[ESTIMATOR] == "grpo" else {},
        f"{SOURCE} trainer/ppo/core_algos.py `AdvantageEstimator`; unsaid it is gae, with a critic",
    ),
    row(
        (_LOSS,),
        ("objective.loss",),
        _write_average,
        _read_average,
        f"{SOURCE} trainer/ppo/core_algos.py `agg_loss`",
        absent={"objective.loss": "dapo"},
    ),
    row(
        (USES_KL, KL, KL_KIND),
        ("objective.beta",),
        _write_distance,
        _read_distance,
        f"{_ACTOR}; trainer/ppo/utils.py `need_reference_policy`",
        absent={"objective.beta": 0.0},
    ),
)


# ── what writes the answers ──────────────────────────────────────────────────────────────────────

_ENGINES: Final[Mapping[Any, str]] = {"vllm_colocate": "vllm", "sglang_colocate": "sglang"}
_NAME: Final = f"{ROLLOUT}.name"
_OFFLOADS: Final = tuple(
    f"{ACTOR}.fsdp_config.{name}" for name in ("param_offload", "optimizer_offload")
)
_ROOM: Final = 0.8
"""The share of the engine's memory that weights may fill; the rest is its cache."""


def engine_width(plan: Plan) -> int | None:
    """The fewest devices that can hold the engine's weights together; None: a node cannot."""
    size = 2 * plan.model.parameters
    room = _ROOM * plan.generation.device_share * plan.devices.memory
    widths = (2**power for power in range(plan.devices.per_node.bit_length()))
    fitting = (each for each in widths if plan.devices.per_node % each == 0)
    return next((each for each in fitting if size <= each * room), None)


def _read_engine(found: Mapping[str, Json]) -> Mapping[str, Any]:
    named = [slot for slot, word in _ENGINES.items() if word == found[_NAME]]
    return {"generation.engine": named[0]} if named else {}


def _read_offload(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """Whether training is offloaded: both keys or none, as plans cannot offload states alone."""
    said = {found.get(key, False) for key in _OFFLOADS}
    return {"generation.offload_training": said.pop()} if len(said) == 1 else {}


_ANSWERS: Final = (
    row(
        (_NAME,),
        ("generation.engine",),
        lambda plan: {
            key: word for key, word in ((_NAME, _ENGINES.get(plan.generation.engine)),) if word
        },
        _read_engine,
        f"{SOURCE} workers/rollout/base.py `get_rollout_class`",
    ),
    same(f"{ROLLOUT}.gpu_memory_utilization", "generation.device_share", _ROLLOUT, default=0.5),
    same(
        f"{ROLLOUT}.free_cache_engine",
        "generation.engine_sleeps",
        f"{_WORKER} `update_weights`",
        default=True,
    ),
    row(
        _OFFLOADS,
        ("generation.offload_training",),
        lambda plan: dict.fromkeys(_OFFLOADS, plan.generation.offload_training),
        _read_offload,
        f"{_WORKER} `update_weights`; workers/engine/fsdp/transformer_impl.py `FSDPEngine`",
        absent={"generation.offload_training": False},
    ),
    same(f"{ROLLOUT}.temperature", "generation.temperature", _ROLLOUT, default=1.0),
    derived(
        f"{ROLLOUT}.tensor_model_parallel_size",
        engine_width,
        f"{_ROLLOUT}: by default two devices share the engine's weights",
    ),
    derived(
        f"{ROLLOUT}.dtype",
        lambda plan: {"bf16": "bfloat16", "fp16": "float16"}.get(plan.precision.compute),
        _ROLLOUT,
    ),
    derived(
        f"{REFERENCE}.fsdp_config.model_dtype",
        lambda plan: plan.states.weights,
        f"{_WORKER} `init_model`: the second model, or the base with its adapters off",
    ),
)


# ── the loop ─────────────────────────────────────────────────────────────────────────────────────


def _write_saving(plan: Plan) -> Mapping[str, Json]:
    every = plan.schedule.save_steps
    return {} if every is None else {"trainer.save_freq": every}


def _read_saving(found: Mapping[str, Json]) -> Mapping[str, Any]:
    every = found["trainer.save_freq"]
    return {"schedule.save_steps": every} if isinstance(every, int) and every > 0 else {}


_DEVICES: Final = ("trainer.nnodes", "trainer.n_gpus_per_node")

_TRAINER: Final = (
    *lasting(30, f"{_LOOP} `fit`"),
    row(
        ("trainer.save_freq",),
        ("schedule.save_steps",),
        _write_saving,
        _read_saving,
        f"{_LOOP} `fit`: below 1 nothing is saved, the last step neither",
    ),
    same("trainer.max_actor_ckpt_to_keep", "schedule.keep_checkpoints", _YAML, default=None),
    row(
        _DEVICES,
        ("parallel.world",),
        lambda plan: dict(zip(_DEVICES, (plan.devices.nodes, plan.devices.per_node), strict=True)),
        lambda found: {"parallel.world": found.get(_DEVICES[0], 1) * found.get(_DEVICES[1], 8)},
        f"{_LOOP} `_init_resource_pool_mgr`: a worker a device",
        absent={"parallel.world": 8},
    ),
    *logging(("wandb",), f"{_YAML}; {_LOOP} `fit`"),
)

REWARDED: Final[tuple[Entry, ...]] = (
    *_PROMPT_DATA,
    *_BATCHES,
    _REWARD,
    *_ANSWERS,
    *_TRAINER,
)
"""Rows of the file of `main_ppo` without those of model, engine, optimizer and objective."""
COMPARED: Final[tuple[Entry, ...]] = _OBJECTIVE
"""Rows of GRPO's objective."""
