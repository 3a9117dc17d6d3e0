"""verl's keys without a slot, and TRL's keys for them."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tunec.compiler.consumers.moved_keys import Carry
from tunec.compiler.target import Json
from tunec.targets.verl.packages import SOURCE
from tunec.targets.verl.rewards import ACTOR, REFERENCE, ROLLOUT

Values = Mapping[str, Json]

YAML: Final = f"{SOURCE} trainer/config/ppo_trainer.yaml"
LOSS: Final = (
    f"{SOURCE} trainer/ppo/core_algos.py `compute_policy_loss_vanilla`, `compute_policy_loss_gspo`,"
    " workers/utils/losses.py `ppo_loss`; trl 0.22.0 to 1.16.0 trainer/grpo_trainer.py "
    "`_compute_loss`"
)
LOOP: Final = (
    "verl 0.8.0 trainer/ppo/ray_trainer.py, 0.9.0 to 0.9.1 trainer/ppo/v1/trainer_base.py `fit`"
)
_SAMPLING: Final = f"{SOURCE} workers/config/rollout.py; trl 0.18.2 to 1.16.0 grpo_config.py"
ESTIMATOR: Final = "algorithm.adv_estimator"
MODE: Final = f"{ACTOR}.policy_loss.loss_mode"
_AVERAGE: Final = f"{ACTOR}.loss_agg_mode"
CORRECTION: Final = "algorithm.rollout_correction"


def _is_vanilla(found: Values) -> bool:
    return found.get(MODE) in (None, "vanilla")


def _in_grpo(
    key: str, write: Callable[[Values], Values | None], source: str, *beside: str, **more: Any
) -> Carry:
    """A key that counts in a run that compares answers within their group."""

    def written(found: Values) -> Values | None:
        return write(found) if found.get(ESTIMATOR) == "grpo" else {}

    around = tuple(each for each in (ESTIMATOR, *beside) if each != key)
    return Carry((key,), written, source, beside=around, **more)


def _renamed(key: str, other: str, source: str, *beside: str) -> Carry:
    def write(found: Values) -> Values:
        return {} if found[key] is None else {other: found[key]}

    return _in_grpo(key, write, source, *beside)


# ── the loss ─────────────────────────────────────────────────────────────────────────────────────


def _bounds(key: str, other: str) -> Carry:
    """A bound of the ratio, which each loss counts from one."""

    def write(found: Values) -> Values:
        is_same = _is_vanilla(found) or found.get(MODE) == "gspo"
        return {other: found[key]} if is_same and found[key] is not None else {}

    return _in_grpo(key, write, LOSS, MODE)


def _bounded_twice(found: Values) -> Values:
    """The bound for answers that are worse than their group: always there in verl, never in TRL."""
    return {"delta": found.get(f"{ACTOR}.clip_ratio_c") or 3.0} if _is_vanilla(found) else {}


def _uncorrected(found: Values) -> Values:
    """verl scores answers with the trained model, unless a key asks for another correction."""
    is_own = any(found.get(f"{CORRECTION}.{key}") for key in ("rollout_is", "rollout_rs"))
    is_scored = not found.get(f"{CORRECTION}.bypass_mode") and not is_own
    return {"vllm_importance_sampling_correction": False} if is_scored else {}


def _by_sequence(found: Values) -> Values:
    is_mean = found.get(_AVERAGE) == "seq-mean-token-mean"
    return {"importance_sampling_level": "sequence"} if found[MODE] == "gspo" and is_mean else {}


def _entropy(found: Values) -> Values:
    """The bonus by the mean over tokens, as TRL has it whatever the loss."""
    key = f"{ACTOR}.entropy_coeff"
    is_mean = found.get(_AVERAGE) in (None, "token-mean")
    return {"entropy_coef": found[key]} if found[key] and is_mean else {}


def _scales(found: Values) -> Values | None:
    is_scaled = found["algorithm.norm_adv_by_std_in_grpo"]
    return {"scale_rewards": "none"} if is_scaled is False else None


_OF_THE_LOSS: Final = (
    _bounds(f"{ACTOR}.clip_ratio_low", "epsilon"),
    _bounds(f"{ACTOR}.clip_ratio_high", "epsilon_high"),
    _in_grpo(ESTIMATOR, _bounded_twice, LOSS, MODE, f"{ACTOR}.clip_ratio_c", is_default=True),
    _renamed(f"{ACTOR}.clip_ratio_c", "delta", LOSS),
    _in_grpo(
        ESTIMATOR,
        _uncorrected,
        f"{SOURCE} trainer/config/algorithm.py `RolloutCorrectionConfig`; trl 0.23.0 to 1.16.0: on "
        "by default",
        *(f"{CORRECTION}.{key}" for key in ("rollout_is", "rollout_rs", "bypass_mode")),
        is_default=True,
    ),
    _in_grpo(MODE, _by_sequence, LOSS, _AVERAGE),
    _in_grpo(f"{ACTOR}.entropy_coeff", _entropy, LOSS, _AVERAGE),
    _in_grpo(
        "algorithm.norm_adv_by_std_in_grpo",
        _scales,
        f"{SOURCE} trainer/ppo/core_algos.py `compute_grpo_outcome_advantage`; trl "
        "trainer/grpo_config.py `scale_rewards`",
    ),
    _renamed(f"{ACTOR}.ppo_epochs", "num_iterations", f"{YAML}; trl trainer/grpo_config.py"),
)


# ── batches and answers ──────────────────────────────────────────────────────────────────────────

PROMPTS: Final = "data.train_batch_size"
_MINI: Final = f"{ACTOR}.ppo_mini_batch_size"


def _generated(found: Values) -> Values:
    """The answers of one generation, if several steps train on them."""
    prompts, mini = found.get(PROMPTS, 1024), found.get(_MINI, 256)
    answers = found.get(f"{ROLLOUT}.n", 1)
    is_known = all(isinstance(each, int) for each in (prompts, mini, answers))
    if not is_known or prompts == mini or prompts % mini:
        return {}
    return {"generation_batch_size": prompts * answers}


def _most(found: Values) -> Values:
    """The number of candidates: without a bound it is -1 in verl, 0 in TRL."""
    value = found[f"{ROLLOUT}.top_k"]
    return {"top_k": max(value, 0)} if isinstance(value, int) else {}


_OF_ANSWERS: Final = (
    *(
        Carry(
            (key,),
            _generated,
            f"{LOOP}; trl 0.18.2 to 1.16.0 trainer/grpo_config.py `GRPOConfig.__post_init__`",
            beside=(other, f"{ROLLOUT}.n"),
            is_default=key == _MINI,
        )
        for key, other in ((PROMPTS, _MINI), (_MINI, PROMPTS))
    ),
    _renamed(f"{ROLLOUT}.top_p", "top_p", _SAMPLING),
    _in_grpo(f"{ROLLOUT}.top_k", _most, _SAMPLING),
    _renamed(f"{ROLLOUT}.repetition_penalty", "repetition_penalty", _SAMPLING),
    _renamed(f"{ROLLOUT}.max_model_len", "vllm_max_model_length", _SAMPLING),
    _renamed(f"{ROLLOUT}.tensor_model_parallel_size", "vllm_tensor_parallel_size", _SAMPLING),
)


# ── the loop ─────────────────────────────────────────────────────────────────────────────────────

_SAVES: Final = "trainer.save_freq"
_ANY: Final = ("trainer.total_epochs", "data.train_files", "data.max_length", ESTIMATOR)
"""Keys of which almost every file has one."""


def _never(found: Values) -> Values:
    """No checkpoint before the end: verl's default."""
    every = found.get(_SAVES, -1)
    is_never = isinstance(every, int) and every < 1
    return {"save_strategy": "no"} if is_never else {}


def _named(found: Values) -> Values:
    name = found["trainer.experiment_name"]
    return {"run_name": name} if isinstance(name, str) else {}


def _in_order(found: Values) -> Values | None:
    return {"shuffle_dataset": False} if found["data.shuffle"] is False else None


def _is_never_cut(found: Values) -> Values | None:
    """How a prompt is cut has no effect if longer ones are left out."""
    return None if found.get("data.filter_overlong_prompts") is True else {}


def _at_first(found: Values) -> Values:
    """Evaluation before training, if there is any."""
    every = found.get("trainer.test_freq", -1)
    is_asked = isinstance(every, int) and every > 0 and found["trainer.val_before_train"] is True
    return {"eval_on_start": True} if is_asked else {}


def _answers_of_each(found: Values) -> Values:
    """Answers to each held-out prompt: one unless a key says otherwise."""
    every, number = found.get("trainer.test_freq", -1), found.get(f"{ROLLOUT}.val_kwargs.n", 1)
    is_evaluated = isinstance(every, int) and every > 0 and isinstance(number, int)
    return {"num_generations_eval": number} if is_evaluated else {}


_SAVING: Final = Carry(
    (_SAVES,),
    _never,
    f"{LOOP}, trainer/sft_trainer.py `fit`: below 1 none; transformers trainer.py",
    slots=("schedule.save_steps",),
)
_OF_BOTH: Final = (
    _SAVING,
    *(Carry((key,), _never, _SAVING.source, beside=(_SAVES,), slots=_SAVING.slots) for key in _ANY),
    Carry(
        ("trainer.experiment_name",),
        _named,
        f"{SOURCE} utils/tracking.py `Tracking`; transformers `run_name`",
    ),
)
CARRIES: Final = _OF_BOTH
"""The keys of the SFT trainer."""


def _whole(key: str) -> Carry:
    """A width over which a sequence is split: 1 splits none."""

    def write(found: Values) -> Values | None:
        return None if found[key] == 1 else {}

    return Carry((key,), write, f"{YAML}: by default that of the actor, which is 1")


REWARDED_CARRIES: Final = (
    *_OF_BOTH,
    _whole(f"{REFERENCE}.ulysses_sequence_parallel_size"),
    *_OF_THE_LOSS,
    *_OF_ANSWERS,
    _in_grpo("data.shuffle", _in_order, f"{YAML}; trl trainer/grpo_config.py `shuffle_dataset`"),
    Carry(
        ("data.truncation",),
        _is_never_cut,
        f"{SOURCE} utils/dataset/rl_dataset.py `maybe_filter_out_long_prompts`",
        beside=("data.filter_overlong_prompts",),
    ),
    Carry(
        ("trainer.val_before_train",),
        _at_first,
        f"{LOOP}; transformers `eval_on_start`",
        beside=("trainer.test_freq",),
    ),
    _in_grpo(
        ESTIMATOR,
        _answers_of_each,
        f"{LOOP} `_validate`; trl 0.27.0 to 1.16.0 trainer/grpo_config.py",
        *("trainer.test_freq", f"{ROLLOUT}.val_kwargs.n"),
        is_default=True,
    ),
)
"""The keys of `main_ppo`."""
