"""Random pairs of training arguments and ds_config.json: sound ones, and ones with a fault put in.

A pair is sound as drawn; then up to two faults are put in: a value of another type, a key at
another level, misspelt, of another release or of nobody, a sum that does not come out.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

Tree = dict[str, Any]
Draw = Callable[[st.SearchStrategy[Any]], Any]

ARGUMENTS: Final = "training_args.json"
CONFIG: Final = "ds_config.json"


@dataclass(frozen=True, slots=True)
class Pair:
    """The two files as values, and the processes that work on different samples."""

    arguments: Tree | None
    """None: DeepSpeed reads its file itself."""
    config: Tree
    world: int
    faults: tuple[str, ...] = ()
    """What was put in, in words."""

    @property
    def files(self) -> Mapping[str, str]:
        """The texts by file name."""
        held = {CONFIG: json.dumps(self.config, indent=2)}
        if self.arguments is not None:
            held[ARGUMENTS] = json.dumps(self.arguments, indent=2)
        return held


# ── sound files ──────────────────────────────────────────────────────────────────────────────────

_ADAM: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "lr": st.sampled_from((1e-5, 5e-5, 1e-3)),
    "betas": st.sampled_from(([0.9, 0.999], [0.9, 0.95])),
    "eps": st.sampled_from((1e-8, 1e-6)),
    "weight_decay": st.sampled_from((0.0, 0.1)),
}
_FILLED_ADAM: Final = ("learning_rate", "adam_beta1", "adam_epsilon", "weight_decay")
_BUCKETS: Final = st.sampled_from((200000000, 500000000, 1e8, 5e8))
_ZERO: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "overlap_comm": st.booleans(),
    "contiguous_gradients": st.booleans(),
    "reduce_scatter": st.booleans(),
    "reduce_bucket_size": _BUCKETS,
    "allgather_partitions": st.booleans(),
    "allgather_bucket_size": _BUCKETS,
    "round_robin_gradients": st.booleans(),
    "sub_group_size": st.sampled_from((1e9, 1000000)),
    "ignore_unused_parameters": st.booleans(),
}
_THREE: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "stage3_prefetch_bucket_size": st.sampled_from((0, 50000000, 5e7)),
    "stage3_param_persistence_threshold": st.sampled_from((0, 100000, 1e5)),
    "stage3_max_live_parameters": st.sampled_from((1e9, 1000)),
    "stage3_max_reuse_distance": st.sampled_from((1e9, 1000)),
    "stage3_gather_16bit_weights_on_model_save": st.booleans(),
}
_SCHEDULES: Final[Mapping[str, Mapping[str, Any]]] = {
    "WarmupLR": {"warmup_min_lr": 0, "warmup_max_lr": 1e-3, "warmup_num_steps": 10},
    "WarmupDecayLR": {
        "total_num_steps": 100,
        "warmup_min_lr": 0,
        "warmup_max_lr": 1e-3,
        "warmup_num_steps": 10,
    },
    "WarmupCosineLR": {"total_num_steps": 100, "warmup_num_steps": 10},
    "OneCycle": {"cycle_min_lr": 1e-4, "cycle_max_lr": 1e-3},
    "LRRangeTest": {"lr_range_test_min_lr": 1e-4, "lr_range_test_step_size": 10},
}
_ROOT: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "gradient_clipping": st.sampled_from((0, 0.5, 1.0)),
    "steps_per_print": st.sampled_from((1, 2000)),
    "wall_clock_breakdown": st.booleans(),
    "zero_allow_untested_optimizer": st.booleans(),
    "zero_force_ds_cpu_optimizer": st.just(False),
    "dump_state": st.just(False),
    "prescale_gradients": st.just(False),
    "memory_breakdown": st.booleans(),
    "communication_data_type": st.sampled_from(("fp16", "bf16", "fp32")),
    "activation_checkpointing": st.just({"partition_activations": False, "profile": False}),
    "flops_profiler": st.just({"enabled": False, "profile_step": 1, "top_modules": 1}),
    "aio": st.just({"block_size": 1048576, "queue_depth": 8, "single_submit": False}),
    "comms_logger": st.just({"enabled": False, "verbose": False}),
    "tensorboard": st.just({"enabled": False, "output_path": "logs"}),
    "data_types": st.just({"grad_accum_dtype": "fp32"}),
}
_HALF: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "loss_scale": st.sampled_from((0, 0.0, 128)),
    "initial_scale_power": st.sampled_from((8, 16)),
    "loss_scale_window": st.sampled_from((100, 1000)),
    "hysteresis": st.sampled_from((1, 2)),
    "min_loss_scale": st.sampled_from((1, 0.5)),
    "auto_cast": st.booleans(),
}
_ARGUMENTS: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "num_train_epochs": st.sampled_from((1, 2, 3.0)),
    "max_steps": st.sampled_from((-1, 100)),
    "lr_scheduler_type": st.sampled_from(("linear", "cosine", "constant_with_warmup")),
    "warmup_steps": st.sampled_from((0, 10)),
    "max_grad_norm": st.sampled_from((0.5, 1.0)),
    "learning_rate": _ADAM["lr"],
    "weight_decay": _ADAM["weight_decay"],
    "adam_beta1": st.just(0.9),
    "adam_beta2": st.sampled_from((0.95, 0.999)),
    "adam_epsilon": _ADAM["eps"],
    "logging_steps": st.sampled_from((1, 10, 0.1)),
    "save_strategy": st.sampled_from(("no", "epoch", "steps")),
    "save_steps": st.sampled_from((50, 0.5)),
    "save_total_limit": st.sampled_from((1, 3)),
    "gradient_checkpointing": st.booleans(),
    "seed": st.sampled_from((0, 42)),
    "dataloader_num_workers": st.sampled_from((0, 2)),
    "dataloader_drop_last": st.booleans(),
    "optim": st.sampled_from(("adamw_torch", "adamw_torch_fused", "sgd")),
    "report_to": st.just("none"),
    "label_smoothing_factor": st.just(0.1),
    "remove_unused_columns": st.booleans(),
    "per_device_eval_batch_size": st.sampled_from((1, 8)),
    "ddp_timeout": st.just(1800),
}


def _some(draw: Draw, of: Mapping[str, st.SearchStrategy[Any]], share: int = 4) -> Tree:
    """Each key with a chance of one in `share`."""
    return {key: draw(each) for key, each in of.items() if not draw(st.integers(0, share - 1))}


@st.composite
def sound(draw: Draw) -> Pair:
    """A pair in which nothing is wrong."""
    world, is_filled = draw(st.sampled_from((1, 2, 4, 8))), draw(st.integers(0, 3)) > 0
    micro, steps = draw(st.sampled_from((1, 2, 4))), draw(st.sampled_from((1, 2, 8)))
    precision = draw(st.sampled_from(("fp16", "bf16", "bf16", None)))
    stage = draw(st.sampled_from((0, 1, 2, 2, 3, 3)))
    arguments = None
    if is_filled:
        arguments = {
            "output_dir": "out",
            "deepspeed": CONFIG,
            "per_device_train_batch_size": micro,
            "gradient_accumulation_steps": steps,
            **({precision: True} if precision else {}),
            **_some(draw, _ARGUMENTS),
        }
    config = {
        **_batch(draw, micro, steps, world, arguments),
        **_precision(draw, precision, is_filled=is_filled),
        "zero_optimization": _zero(draw, stage, is_filled=is_filled),
        **_some(draw, _ROOT, 8),
    }
    if precision is None or stage == 0:
        config.pop("data_types", None)
    if "gradient_clipping" in config and arguments is not None:
        config["gradient_clipping"] = draw(st.sampled_from(("auto", _norm(arguments))))
    is_offloaded = "offload_optimizer" in config["zero_optimization"]
    if not is_filled or is_offloaded or draw(st.booleans()):
        config["optimizer"] = _optimizer(draw, arguments, world)
        if draw(st.booleans()):
            config["scheduler"] = _scheduler(draw, arguments)
    return Pair(arguments, config, world)


def _norm(arguments: Tree) -> float:
    return float(arguments.get("max_grad_norm", 1.0))


def _batch(draw: Draw, micro: int, steps: int, world: int, arguments: Tree | None) -> Tree:
    whole = {
        "train_batch_size": micro * steps * world,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": steps,
    }
    if arguments is not None:
        kept = dict(whole)
        kept.pop(draw(st.sampled_from((None, "train_batch_size"))), None)
        if draw(st.integers(0, 9)) == 0:  # what DeepSpeed cannot begin from
            kept = {key: value for key, value in kept.items() if draw(st.booleans())}
        return {key: draw(st.sampled_from(("auto", value))) for key, value in kept.items()}
    left = draw(st.sampled_from((None, *whole)))
    return {key: value for key, value in whole.items() if key != left}


def _precision(draw: Draw, word: str | None, *, is_filled: bool) -> Tree:
    found: Tree = {}
    if word is not None:
        on = draw(st.sampled_from(("auto", True))) if is_filled else True
        found[word] = {"enabled": on}
    for other in ("fp16", "bf16"):
        if other != word and draw(st.integers(0, 2)) == 0:
            found[other] = {"enabled": "auto" if is_filled else False}
    if word == "fp16":
        found["fp16"] |= _some(draw, _HALF, 3)
    return found


def _zero(draw: Draw, stage: int, *, is_filled: bool) -> Tree:
    found: Tree = {"stage": stage, **_some(draw, _ZERO, 5)}
    if stage == 3:
        found |= _some(draw, _THREE, 3)
        if is_filled and draw(st.booleans()):
            found["reduce_bucket_size"] = "auto"
        if draw(st.integers(0, 3)) == 0:
            found["offload_param"] = {"device": "cpu", "pin_memory": draw(st.booleans())}
    if stage and draw(st.integers(0, 3)) == 0:
        found["offload_optimizer"] = {"device": draw(st.sampled_from(("cpu", "none")))}
    return found


def _optimizer(draw: Draw, arguments: Tree | None, world: int) -> Tree:
    del world
    kind = draw(st.sampled_from(("Adam", "AdamW", "AdamW")))
    params = _some(draw, _ADAM, 2)
    params.setdefault("lr", 1e-4)
    if arguments is not None:
        params = dict.fromkeys(params, "auto")
    return {"type": kind, "params": params}


def _scheduler(draw: Draw, arguments: Tree | None) -> Tree:
    kind = draw(st.sampled_from(tuple(_SCHEDULES)))
    params = dict(_SCHEDULES[kind])
    if arguments is not None:
        filled = ("warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "total_num_steps")
        params = {key: "auto" if key in filled else each for key, each in params.items()}
    return {"type": kind, "params": params}


# ── faults ───────────────────────────────────────────────────────────────────────────────────────

_VALUES: Final = (
    *(None, True, False, "auto", "8", "1e-4", "true", "false", "abc", "", 0, 1, 3, -1, 7, 1.5, 2.0),
    *(1e8, -0.5, [], [1, 2], {}, {"enabled": True}),
)
_STRAY: Final = (
    *("evaluation_strategy", "no_cuda", "overwrite_output_dir", "warmup_ratio", "group_by_length"),
    *("save_safetensors", "logging_dir", "fp16_backend", "tpu_num_cores", "jit_mode_eval"),
    *("adafactor", "eval_strategy", "include_tokens_per_second", "push_to_hub_token"),
    *(
        "torchdynamo",
        "use_ipex",
        "average_tokens_across_devices",
        "use_liger_kernel",
        "eval_on_start",
    ),
    *("micro_batch_size", "zero_optimization", "lora_r", "bf16_full_eval", "use_cache"),
)
_STRAY_VALUES: Final[Mapping[str, Any]] = {
    "evaluation_strategy": "no",
    "eval_strategy": "no",
    "warmup_ratio": 0.1,
    "logging_dir": "logs",
    "fp16_backend": "auto",
    "tpu_num_cores": 1,
    "push_to_hub_token": "x",
    "torchdynamo": "eager",
    "micro_batch_size": 2,
    "zero_optimization": {"stage": 2},
    "lora_r": 8,
}


def _paths(tree: Tree, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in tree.items():
        yield (*prefix, key)
        if isinstance(value, dict):
            yield from _paths(value, (*prefix, key))


def _holder(tree: Tree, path: tuple[str, ...]) -> Tree:
    for key in path[:-1]:
        tree = tree[key]
    return tree


def _another_value(draw: Draw, pair: Pair, tree: Tree) -> str:
    del pair
    path = draw(st.sampled_from(tuple(_paths(tree))))
    value = draw(st.sampled_from(_VALUES))
    _holder(tree, path)[path[-1]] = deepcopy(value)
    return f"{'.'.join(path)} = {value!r}"


def _another_level(draw: Draw, pair: Pair, tree: Tree) -> str:
    del pair
    path = draw(st.sampled_from(tuple(_paths(tree))))
    blocks = [each for each in _paths(tree) if isinstance(_at(tree, each), dict)]
    goal = draw(st.sampled_from(((), *blocks)))
    if goal[: len(path)] == path or goal == path[:-1]:
        return "nothing"
    value = _holder(tree, path).pop(path[-1])
    _at(tree, goal)[path[-1]] = value
    return f"{'.'.join(path)} moved to {'.'.join(goal) or 'the top'}"


def _at(tree: Tree, path: tuple[str, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def _misspelt(draw: Draw, pair: Pair, tree: Tree) -> str:
    del pair
    path = draw(st.sampled_from(tuple(_paths(tree))))
    holder = _holder(tree, path)
    if len(path[-1]) < 4:
        return "nothing"
    holder[path[-1][:-2]] = holder.pop(path[-1])
    return f"{'.'.join(path)} misspelt"


def _left_out(draw: Draw, pair: Pair, tree: Tree) -> str:
    del pair
    path = draw(st.sampled_from(tuple(_paths(tree))))
    del _holder(tree, path)[path[-1]]
    return f"{'.'.join(path)} left out"


def _stray(draw: Draw, pair: Pair, tree: Tree) -> str:
    del tree
    key = draw(st.sampled_from(_STRAY))
    if pair.arguments is None:
        return "nothing"
    pair.arguments[key] = deepcopy(_STRAY_VALUES.get(key, True))
    return f"{key} put in"


_FAULTS: Final = (
    *(_another_value, _another_value, _another_value, _another_level, _misspelt, _left_out, _stray),
)


@st.composite
def pairs(draw: Draw) -> Pair:
    """A sound pair in one of four cases; else one with a fault or two."""
    pair: Pair = deepcopy(draw(sound()))
    said = []
    for _ in range(draw(st.sampled_from((0, 1, 1, 2)))):
        trees = [each for each in (pair.config, pair.arguments) if each]
        fault = draw(st.sampled_from(_FAULTS))
        said.append(fault(draw, pair, draw(st.sampled_from(trees))) if trees else "nothing")
    return Pair(pair.arguments, pair.config, pair.world, tuple(said))


def drawn(count: int, start: int) -> list[Pair]:
    """At most so many different pairs, the same ones for the same start."""
    found: dict[tuple[str, ...], Pair] = {}

    @seed(start)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(pairs())
    def collect(pair: Pair) -> None:
        # Hypothesis makes many an example from the last one by a small change
        found.setdefault(pair.faults or tuple(sorted(pair.config)), pair)

    collect()
    return list(found.values())
