"""Rows of `swift rlhf --rlhf_type grpo`: prompts, answers, the engine, and rewards."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Entry, Json
from tunec.targets.read_only import split_names
from tunec.targets.rows import is_rewarded, row

_RLHF: Final = "ms-swift 4.0.4 to 4.6.0 arguments/rlhf_args.py `RLHFArguments`"
_ROLLOUT: Final = (
    "ms-swift 4.0.4 to 4.6.0 rlhf_trainers/args_mixin.py `RolloutTrainerArgumentsMixin`"
)
_ORM: Final = "ms-swift 4.0.4 to 4.6.0 rewards/orm.py `orms`"
KIND: Final = "rlhf_type"
_IS: Final[Mapping[str, Json]] = {KIND: "grpo"}


def is_rewarding(found: Mapping[str, Json]) -> bool:
    """Whether keys belong to a run with rewards."""
    return found.get(KIND) == "grpo"


def _of_answers(key: str, slot: str, usual: Json, source: str = _RLHF) -> Entry:
    """A row for a key that holds a slot's value, and is only read with rewards."""
    return row(
        (key, KIND),
        (slot,),
        lambda plan: {key: plan[slot], **_IS},
        lambda found: {slot: found.get(key, usual)} if is_rewarding(found) else {},
        source,
        when=is_rewarded,
    )


# ── lengths ──────────────────────────────────────────────────────────────────────────────────────


def _write_lengths(plan: Plan) -> Mapping[str, Json]:
    answer = plan.generation.completion
    return {"max_length": plan.generation.prompt, "max_completion_length": answer, **_IS}


def _read_lengths(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The lengths of prompt and answer; by default prompts are not bounded."""
    prompt, answer = found.get("max_length"), found.get("max_completion_length", 512)
    if not is_rewarding(found) or not isinstance(answer, int):
        return {}
    known = {"generation.completion": answer}
    if not isinstance(prompt, int):
        return known
    return {**known, "generation.prompt": prompt, "data.sequence": prompt + answer}


# ── what writes them ─────────────────────────────────────────────────────────────────────────────

_ENGINE: Final = "generation.engine"
_SHARE: Final = "generation.device_share"
_VLLM: Final = ("use_vllm", "vllm_mode", "vllm_gpu_memory_utilization", KIND)


def _write_engine(plan: Plan) -> Mapping[str, Json]:
    if plan.generation.engine == "transformers":
        return {"use_vllm": False, **_IS}
    if plan.generation.engine != "vllm_colocate":
        return {}
    share = plan.generation.device_share
    return dict(zip(_VLLM, (True, "colocate", share, "grpo"), strict=True))


def _read_engine(found: Mapping[str, Json]) -> Mapping[str, Any]:
    if not is_rewarding(found):
        return {}
    if found.get("use_vllm") is not True:
        return {_ENGINE: "transformers", _SHARE: 0.0}
    if found.get("vllm_mode") == "server":
        return {_ENGINE: "vllm_server", _SHARE: 0.0}
    share = found.get("vllm_gpu_memory_utilization", 0.9)
    return {_ENGINE: "vllm_colocate", _SHARE: share}


_WHERE: Final = ("use_vllm", "vllm_mode")


def _is_beside(found: Mapping[str, Json]) -> bool:
    """Whether vLLM runs on the training devices."""
    return found.get("use_vllm") is True and found.get("vllm_mode") == "colocate"


def _where(plan: Plan) -> Mapping[str, Json]:
    return {**{key: each for key, each in _write_engine(plan).items() if key in _WHERE}, **_IS}


def _read_sleep(found: Mapping[str, Json]) -> Mapping[str, Any]:
    sleeps = _is_beside(found) and bool(found.get("sleep_level"))
    return {"generation.engine_sleeps": sleeps} if is_rewarding(found) else {}


_TURNS: Final = "generation.offload_training"
_OFFLOADS: Final = ("offload_model", "offload_optimizer")


def _write_turns(plan: Plan) -> Mapping[str, Json]:
    return {**dict.fromkeys(_OFFLOADS, plan.generation.offload_training), **_where(plan)}


def _read_turns(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """Whether weights and states are offloaded, both or neither; never with a vLLM server."""
    said = {_is_beside(found) and found.get(key, False) is True for key in _OFFLOADS}
    return {_TURNS: said == {True}} if is_rewarding(found) and len(said) == 1 else {}


# ── rewards ──────────────────────────────────────────────────────────────────────────────────────

REGISTERED: Final = (
    *("toolbench", "math", "accuracy", "format", "react_format", "cosine", "repetition"),
)
"""Rewards of ms-swift without further keys: rewards/orm.py `orms`."""


def plugin_of(name: str) -> tuple[str, str]:
    """The file that registers a reward, and its name there: `plugin.py:name`."""
    path, _, reward = name.rpartition(":")
    return (path, reward) if path.endswith(".py") else ("", name)


def _write_rewards(plan: Plan) -> Mapping[str, Json]:
    named = [plugin_of(each) for each in plan.objective.rewards]
    files = [*dict.fromkeys(path for path, _ in named if path)]
    plugins = {"external_plugins": files} if files else {}
    return {"reward_funcs": [name for _, name in named], **plugins, **_IS}


def _read_rewards(found: Mapping[str, Json]) -> Mapping[str, Any]:
    """The rewards; with one plugin file, unknown names are those that it registers."""
    names = split_names(found.get("reward_funcs"))
    files = split_names(found.get("external_plugins"))
    if not is_rewarding(found) or not names or len(files) > 1:
        return {}
    path = f"{files[0]}:" if files else ""
    return {
        "objective.rewards": tuple(each if each in REGISTERED else path + each for each in names)
    }


REWARDED: Final = (
    _of_answers("num_generations", "generation.samples", 8),
    _of_answers("temperature", "generation.temperature", 0.9),
    row(
        ("max_length", "max_completion_length", KIND),
        ("generation.prompt", "generation.completion", "data.sequence"),
        _write_lengths,
        _read_lengths,
        f"{_RLHF}; rlhf_trainers/grpo_trainer.py: `max_length` bounds the prompt",
        when=is_rewarded,
    ),
    row(
        _VLLM,
        (_ENGINE, _SHARE),
        _write_engine,
        _read_engine,
        f"{_ROLLOUT}; {_RLHF} `_init_rollout`",
        when=is_rewarded,
    ),
    row(
        ("sleep_level", *_WHERE, KIND),
        ("generation.engine_sleeps",),
        lambda plan: {"sleep_level": int(plan.generation.engine_sleeps), **_where(plan)},
        _read_sleep,
        f"{_ROLLOUT}; {_RLHF} `_init_grpo`: 0 without vLLM on the same devices",
        when=is_rewarded,
        beside=(*_WHERE, KIND),
    ),
    row(
        (*_OFFLOADS, *_WHERE, KIND),
        (_TURNS,),
        _write_turns,
        _read_turns,
        f"{_ROLLOUT}; rlhf_trainers/rollout_mixin.py `enable_offload`",
        when=is_rewarded,
        beside=(*_WHERE, KIND),
    ),
    row(
        ("reward_funcs", "external_plugins", KIND),
        ("objective.rewards",),
        _write_rewards,
        _read_rewards,
        f"{_ORM}; arguments/base_args/base_args.py `_import_external_plugins`",
        when=is_rewarded,
    ),
)
