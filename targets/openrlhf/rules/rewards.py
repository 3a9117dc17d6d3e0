"""The assertions about flags in OpenRLHF's program for rewards, before it starts anything."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place, also
from tunec.compiler.lints.rule import Finding, rule

_KIND: Final = "openrlhf-ppo"
_SOURCE: Final = "OpenRLHF checks it before it starts a process: AssertionError"
_DEFAULTS: Final[Mapping[str, Any]] = {
    **{f"{model}.num_nodes": 1 for model in ("actor", "ref", "critic", "reward")},
    **{f"{model}.num_gpus_per_node": 8 for model in ("actor", "ref", "critic", "reward")},
    "algo.advantage.estimator": "gae",
    "algo.advantage.is_correction_threshold": [0.5, 5.0],
    "algo.dynamic_filtering_range": [0, 1],
    "algo.kl.init_coef": 0.01,
    "data.max_images_per_prompt": 0,
    "ds.ring_attn_size": 1,
    "ds.tensor_parallel_size": 1,
    "rollout.batch_size": 1024,
    "rollout.micro_batch_size": 1,
    "rollout.n_samples_per_prompt": 1,
    "vllm.num_engines": None,
    "vllm.tensor_parallel_size": 1,
}
"""openrlhf 0.10.4 to 0.11.2 cli/train_ppo_ray.py; every other flag is false or None."""
_GROUPED: Final = ("rloo", "reinforce_baseline", "group_norm", "dr_grpo")
Flags = Callable[[str], Any]


class Check(Struct, frozen=True):
    """An assertion of the program."""

    keys: tuple[str, ...]
    """The flags that it reads, the most prominent one first."""
    fails: Callable[[Flags], Any]
    message: str
    help: str


def _devices(flags: Flags, model: str) -> int:
    return int(flags(f"{model}.num_nodes") * flags(f"{model}.num_gpus_per_node"))


def _differ(flags: Flags, one: str, other: str) -> bool:
    counts = ("num_nodes", "num_gpus_per_node")
    return any(flags(f"{one}.{each}") != flags(f"{other}.{each}") for each in counts)


def _counts(*models: str) -> tuple[str, ...]:
    return tuple(f"{each}.{name}" for each in models for name in ("num_gpus_per_node", "num_nodes"))


def _is_judged(flags: Flags) -> bool:
    return bool(flags("reward.remote_url") or flags("train.agent_func_path"))


def _joins(flags: Flags) -> bool:
    """Whether samples are packed: ring attention and dynamic batches turn it on too."""
    also_on = flags("ds.ring_attn_size") > 1 or flags("train.dynamic_batch_enable")
    return bool(flags("ds.packing_samples") or also_on)


def _engines(flags: Flags) -> int:
    return int((flags("vllm.num_engines") or 0) * flags("vllm.tensor_parallel_size"))


def _processes(flags: Flags) -> int:
    split = flags("ds.ring_attn_size"), flags("ds.tensor_parallel_size")
    return int(_devices(flags, "actor") // split[0] // split[1])


def _batches(flags: Flags) -> int:
    answers = flags("rollout.n_samples_per_prompt") * flags("rollout.batch_size")
    return int(answers // flags("rollout.micro_batch_size"))


_SAMPLES: Final = "rollout.n_samples_per_prompt"
_ESTIMATOR: Final = "algo.advantage.estimator"
_FILTER: Final = "algo.dynamic_filtering_enable"
_JUDGE: Final = "write --reward.remote_url or --train.agent_func_path"
_PLACED: Final = ("train.colocate_actor_ref", "train.colocate_all")
CHECKS: Final = (
    Check(
        (*_counts("ref", "actor"), *_PLACED, "algo.kl.init_coef"),
        lambda flags: (
            any(map(flags, _PLACED))
            and flags("algo.kl.init_coef") > 0
            and _differ(flags, "actor", "ref")
        ),
        "actor and reference share devices, and are given different numbers of them",
        "write the same numbers for --ref and --actor",
    ),
    Check(
        ("vllm.num_engines", "vllm.tensor_parallel_size", *_counts("actor"), "train.colocate_all"),
        lambda flags: (
            _engines(flags)
            and flags("train.colocate_all")
            and not flags("train.async_enable")
            and _devices(flags, "actor") != _engines(flags)
        ),
        "vLLM's engines and the actor share devices, and take different numbers of them",
        "write as many engines, times their width, as the actor has devices",
    ),
    Check(
        (*_counts("critic", "reward"), "train.colocate_critic_reward"),
        lambda flags: (
            flags("train.colocate_critic_reward")
            and flags(_ESTIMATOR) == "gae"
            and _differ(flags, "critic", "reward")
        ),
        "critic and reward model share devices, and are given different numbers of them",
        "write the same numbers for --critic and --reward",
    ),
    Check(
        ("algo.advantage.is_correction_threshold",),
        lambda flags: len(flags("algo.advantage.is_correction_threshold")) > 2,
        "the threshold has a lower and an upper end, and more numbers are given",
        "write HIGH, or LOW HIGH",
    ),
    Check(
        (_ESTIMATOR, _SAMPLES),
        lambda flags: flags(_ESTIMATOR) in _GROUPED and flags(_SAMPLES) < 2,
        "the estimator compares several answers to a prompt, and one is generated",
        f"write --{_SAMPLES} 2 or more",
    ),
    Check(
        ("data.max_images_per_prompt", _ESTIMATOR),
        lambda flags: flags("data.max_images_per_prompt") > 0 and flags(_ESTIMATOR) == "gae",
        "models with images are trained without a critic, and the estimator gae has one",
        f"write --{_ESTIMATOR} rloo, reinforce_baseline or group_norm",
    ),
    Check(
        ("ds.packing_samples", "data.max_images_per_prompt"),
        lambda flags: flags("data.max_images_per_prompt") > 0 and flags("ds.packing_samples"),
        "samples with images cannot be packed",
        "remove --ds.packing_samples",
    ),
    Check(
        ("vllm.num_engines", "ds.packing_samples"),
        lambda flags: _joins(flags) and flags("vllm.num_engines") == 0,
        "samples are packed only if vLLM writes the answers, and it has no engine",
        "write --vllm.num_engines 1 or more",
    ),
    Check(
        ("vllm.enable_sleep", "train.async_enable", "train.colocate_all"),
        lambda flags: all(
            map(flags, ("vllm.enable_sleep", "train.async_enable", "train.colocate_all"))
        ),
        "vLLM cannot sleep in asynchronous training, which generates while it trains",
        "remove --vllm.enable_sleep",
    ),
    Check(
        ("train.partial_rollout_enable",),
        lambda flags: flags("train.partial_rollout_enable") and not flags("train.async_enable"),
        "partial rollouts need asynchronous training",
        "write --train.async_enable",
    ),
    Check(
        ("eval.dataset",),
        lambda flags: flags("eval.dataset") and not _is_judged(flags),
        "no reward judges the answers of the evaluation",
        _JUDGE,
    ),
    Check(
        ("rollout.vllm_generate_batch_size", "rollout.batch_size"),
        lambda flags: (
            (flags("rollout.vllm_generate_batch_size") or 0) > flags("rollout.batch_size")
            and not flags("train.async_enable")
        ),
        "vLLM answers more prompts at a time than a step trains on",
        "write --train.async_enable, or no more than --rollout.batch_size",
    ),
    Check(
        ("algo.dynamic_filtering_range", _FILTER),
        lambda flags: (
            flags(_FILTER)
            and flags("algo.dynamic_filtering_range")[0] >= flags("algo.dynamic_filtering_range")[1]
        ),
        "no reward lies in the range of the dynamic filter",
        "write the smaller number first",
    ),
    Check(
        (_FILTER,),
        lambda flags: flags(_FILTER) and not _is_judged(flags),
        "the dynamic filter keeps prompts by their rewards, and nothing gives rewards",
        _JUDGE,
    ),
    Check(
        (_FILTER, _SAMPLES),
        lambda flags: flags(_FILTER) and flags(_SAMPLES) < 2,
        "the dynamic filter compares several answers to a prompt, and one is generated",
        f"write --{_SAMPLES} 2 or more",
    ),
    Check(
        ("rollout.batch_size", "rollout.micro_batch_size", _SAMPLES, *_counts("actor")),
        lambda flags: _batches(flags) < _processes(flags),
        "there are fewer batches of answers than processes of the actor",
        "write a larger --rollout.batch_size, or fewer devices",
    ),
)


@rule("error", "init", consumers=("openrlhf",), reads=(f"{_KIND}:*",))
def rewarded_run_refused_by_openrlhf(run: LintContext) -> Iterator[Finding]:
    """Flags that violate an assertion of the program."""
    for document in run.of(_KIND):
        for check in CHECKS:
            yield from _found(document, check)


def _found(document: Document, check: Check) -> Iterator[Finding]:
    asked, hidden = dict[str, Place](), list[str]()

    def value(key: str) -> Any:
        if document.hides(key):
            hidden.append(key)
        place = document.get(key)
        if place is None:
            return _DEFAULTS.get(key)
        if key in check.keys:
            asked[key] = place
        return place.value

    try:
        fails = bool(check.fails(value))
    except (TypeError, ValueError, LookupError, ZeroDivisionError):
        return  # a value of another type, which the parser refuses
    said = [asked[key] for key in check.keys if key in asked]
    if fails and said and not hidden:
        first, *others = said
        beside = (label for each in others for label in also(each))
        yield Finding(check.message, (first.label("refused"), *beside), (_SOURCE,), check.help)
