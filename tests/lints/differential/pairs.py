"""Random pairs of training arguments and ds_config.json: sound ones, and ones with a fault put in.

A pair is sound as drawn, by some release; then up to two faults are put in: a value of another
type, a key at another level, misspelt, of another release or of nobody, a sum that does not come
out.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import sections
import trainer_fields
from draws import Draw, Drawn, Tree
from faults import FAULTS

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


def sound(draw: Draw) -> Pair:
    """A pair in which nothing is wrong, by some release."""
    world, is_filled = draw.pick((1, 2, 4, 8)), not draw.one_in(4)
    micro, steps = draw.pick((1, 2, 4)), draw.pick((1, 2, 8))
    precision = draw.pick(("fp16", "bf16", "bf16", None))
    stage = draw.pick((0, 1, 2, 2, 3, 3))
    arguments = _arguments(draw, micro, steps, precision) if is_filled else None
    config = {
        **_batch(draw, micro, steps, world, arguments),
        **_precision(draw, precision, is_filled=is_filled),
        "zero_optimization": _zero(draw, stage, is_filled=is_filled),
        **draw.some(sections.ROOT, 8),
        **_seldom(draw, sections.SECTIONS),
    }
    if precision is None or stage == 0:
        config.pop("data_types", None)
    if "gradient_clipping" in config and arguments is not None:
        config["gradient_clipping"] = draw.pick(("auto", _norm(arguments)))
    is_offloaded = "offload_optimizer" in config["zero_optimization"]
    if not is_filled or is_offloaded or draw.one_in(2):
        config["optimizer"] = _optimizer(draw, arguments)
        if draw.one_in(2):
            config["scheduler"] = _scheduler(draw, arguments)
    return Pair(arguments, config, world)


def _seldom(draw: Draw, of: Drawn) -> Tree:
    """None, one or two of many."""
    keys = [draw.pick(tuple(of)) for _ in range(draw.pick((0, 0, 1, 2)))]
    return {key: draw.value(of[key]) for key in keys}


def _arguments(draw: Draw, micro: int, steps: int, precision: str | None) -> Tree:
    return {
        "output_dir": "out",
        "deepspeed": CONFIG,
        "per_device_train_batch_size": micro,
        "gradient_accumulation_steps": steps,
        **({precision: True} if precision else {}),
        **draw.some(trainer_fields.OFTEN),
        **_seldom(draw, trainer_fields.SELDOM),
    }


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
        kept.pop(draw.pick((None, "train_batch_size")), None)
        if draw.one_in(10):  # what DeepSpeed cannot begin from
            kept = {key: value for key, value in kept.items() if draw.one_in(2)}
        return {key: draw.pick(("auto", value)) for key, value in kept.items()}
    left = draw.pick((None, *whole))
    return {key: value for key, value in whole.items() if key != left}


def _precision(draw: Draw, word: str | None, *, is_filled: bool) -> Tree:
    found: Tree = {}
    if word is not None:
        on = draw.pick(("auto", True)) if is_filled else True
        found[word] = {"enabled": on}
    for other in ("fp16", "bf16"):
        if other != word and draw.one_in(3):
            found[other] = {"enabled": "auto" if is_filled else False}
    if word == "fp16":
        found["fp16"] |= draw.some(sections.HALF, 3)
    if word == "bf16":
        found["bf16"] |= draw.some(sections.BRAIN, 12)
    return found


def _zero(draw: Draw, stage: int, *, is_filled: bool) -> Tree:
    found: Tree = {
        "stage": stage,
        **draw.some(sections.ZERO, 5),
        **_seldom(draw, sections.SELDOM_ZERO),
    }
    if stage == 3:
        found |= draw.some(sections.THREE, 3) | _seldom(draw, sections.SELDOM_THREE)
        if is_filled and draw.one_in(2):
            found["reduce_bucket_size"] = "auto"
        if draw.one_in(4):
            params = draw.some(sections.OFFLOADED_PARAMS, 3)
            found["offload_param"] = {"device": "cpu", **params}
    if stage and draw.one_in(4):
        device = draw.pick(("cpu", "none"))
        states = draw.some(sections.OFFLOADED_STATES, 6)
        found["offload_optimizer"] = {"device": device, **states}
    return found


def _optimizer(draw: Draw, arguments: Tree | None) -> Tree:
    every = (*sections.OFTEN, *sections.OFTEN, *sections.OPTIMIZERS)
    kind = draw.pick(every)
    params = draw.some(sections.ADAM, 2)
    params.setdefault("lr", 1e-4)
    if arguments is not None:
        params = dict.fromkeys(params, "auto")
    return {"type": kind, "params": params | draw.some(sections.OPTIMIZERS[kind], 6)}


def _scheduler(draw: Draw, arguments: Tree | None) -> Tree:
    kind = draw.pick(tuple(sections.SCHEDULES))
    params = dict(sections.SCHEDULES[kind])
    if arguments is not None:
        filled = ("warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "total_num_steps")
        params = {key: "auto" if key in filled else each for key, each in params.items()}
    return {"type": kind, "params": params | draw.some(sections.SCHEDULED[kind], 4)}


def with_faults(draw: Draw) -> Pair:
    """A sound pair in one of four cases; else one with a fault or two."""
    pair = sound(draw)
    said = []
    for _ in range(draw.pick((0, 1, 1, 2))):
        trees = [each for each in (pair.config, pair.arguments) if each]
        # picked by position, for the fault goes into the pair itself
        at = draw.pick(range(len(trees))) if trees else None
        fault = draw.pick(FAULTS)
        said.append("nothing" if at is None else fault(draw, pair.arguments, trees[at]))
    return Pair(pair.arguments, pair.config, pair.world, tuple(said))


def drawn(count: int, start: int) -> list[Pair]:
    """So many pairs, the same ones for the same start."""
    draw = Draw(start)
    return [with_faults(draw) for _ in range(count)]
