"""How training continues from a checkpoint with another engine or number of ranks, case by case.

Each row states what the loaders do, by their sources; tests/cli/test_resume.py checks rows against
recorded real runs.
"""

from collections.abc import Callable
from shlex import quote
from typing import Final, Literal

from msgspec import Struct

from tunec.compiler.resume.folder import Checkpoint, Kind

Outcome = Literal["same state", "converted", "weights alone"]
"""With the same optimizer states unchanged, after a conversion, or only with the weights."""
Family = Literal["deepspeed", "fsdp", "plain"]
"""The engine whose loader reads the folder; `plain` is one process or DDP."""


class Goal(Struct, frozen=True):
    """The engine and ranks with which training continues."""

    family: Family
    world: int
    stage: int | None = None
    """The ZeRO stage; none: unknown, taken as before."""


class Way(Struct, frozen=True):
    """What to do, and the outcome."""

    outcome: Outcome
    why: str
    source: str
    commands: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    """Settings that the new run's files must have."""
    sets: tuple[str, ...] = ()
    """Those settings for the spec, as `--set` takes them."""
    lost: tuple[str, ...] = ()


class _Row(Struct, frozen=True):
    kinds: tuple[Kind, ...]
    families: tuple[Family, ...]
    way: Callable[[Checkpoint, Goal], Way]
    holds: Callable[[Checkpoint, Goal], bool] = lambda _, __: True


def way_of(found: Checkpoint, goal: Goal) -> Way:
    """How training continues: the first row that applies."""
    for row in _ROWS:
        if found.kind in row.kinds and goal.family in row.families and row.holds(found, goal):
            return row.way(found, goal)
    raise AssertionError(f"no row for {found.kind} and {goal.family}")


def _state(found: Checkpoint) -> tuple[str, ...]:
    if found.kind == "weights":
        return ()
    return "moments of the optimizer", "step and rate of the schedule", "place in the data"


def _is_of_stage(found: Checkpoint, goal: Goal) -> bool:
    """Whether the new stage reads files of these names: 1 and 2 share theirs, 3 has others."""
    if found.stage is None or goal.stage is None:
        return True
    return (found.stage == 3) == (goal.stage == 3)


def _is_of_ranks(found: Checkpoint, goal: Goal) -> bool:
    return _is_of_stage(found, goal) and found.world == goal.world


def _zero_same(_: Checkpoint, goal: Goal) -> Way:
    return Way(
        "same state",
        f"each of {goal.world} ranks finds its own file of ZeRO's state",
        "deepspeed 0.19.8 runtime/engine.py `_load_zero_checkpoint`",
    )


_CONVERT: Final = "python -m deepspeed.checkpoint.ds_to_universal --inject_missing_state"
"""Without the flag it refuses what a Trainer wrote: "Required universal_checkpoint_info state is
missing in checkpoint"."""


_LOADS_UNIVERSAL: Final = ('in the DeepSpeed file: `"checkpoint": {"load_universal": true}`',)
_SETS_UNIVERSAL: Final = ("extra.deepspeed={checkpoint: {load_universal: true}}",)


def _zero_other(found: Checkpoint, goal: Goal) -> Way:
    folder, made = quote(str(found.path / found.tag)), f"{found.tag}_universal"
    target = quote(str(found.path / made))
    return Way(
        "converted",
        f"ZeRO's state is cut for {found.world} ranks, and {goal.world} are to read it: as it is, "
        "DeepSpeed refuses it",
        "deepspeed 0.19.8 runtime/engine.py `_load_zero_checkpoint`, checkpoint/ds_to_universal.py",
        (
            _CONVERT + f" --input_folder {folder} --output_folder {target}",
            f"echo -n {quote(made)} > {quote(str(found.path / 'latest_universal'))}",
        ),
        _LOADS_UNIVERSAL,
        _SETS_UNIVERSAL,
    )


def _universal(found: Checkpoint, _: Goal) -> Way:
    return Way(
        "same state",
        "a universal checkpoint holds each parameter's state whole, for any number of ranks",
        "deepspeed 0.19.8 checkpoint/universal_checkpoint.py `load_hp_checkpoint_state`",
        (f"echo -n {quote(found.tag)} > {quote(str(found.path / 'latest_universal'))}",),
        _LOADS_UNIVERSAL,
        _SETS_UNIVERSAL,
    )


def _zero_of_stage(found: Checkpoint, goal: Goal) -> Way:
    """Tried with deepspeed 0.19.8 in both directions: an assertion fails on loading."""
    way = _zero_elsewhere(found, goal)
    kept = "3" if found.stage == 3 else "2"
    return Way(
        way.outcome,
        f"ZeRO-{goal.stage} looks for other files than ZeRO-{kept} wrote, made universal or not",
        "deepspeed 0.19.8 runtime/engine.py `_get_ckpt_name`, `_load_checkpoint`",
        way.commands,
        (*way.settings, f"or keep the state by keeping the stage: `--set pin.zero.stage={kept}`"),
        lost=way.lost,
    )


def _zero_elsewhere(found: Checkpoint, _: Goal) -> Way:
    there = found.weights is not None
    out = quote(str(found.path.with_name(found.path.name + "-weights")))
    command = (
        "python -m deepspeed.utils.zero_to_fp32 --safe_serialization "
        f"--tag {quote(found.tag)} {quote(str(found.path))} {out}"
    )
    return Way(
        "weights alone",
        "only DeepSpeed reads the state that ZeRO wrote",
        "deepspeed 0.19.8 utils/zero_to_fp32.py; transformers 5.23.0 trainer.py "
        "`_load_optimizer_and_scheduler`, which silently begins anew without optimizer.pt",
        () if there or found.kind == "universal" else (command,),
        (_from_weights(found) if there else f"model: {out}, and no resume_from_checkpoint",),
        lost=_state(found),
    )


def _fsdp_same(found: Checkpoint, _: Goal) -> Way:
    is_sharded = found.kind == "fsdp-sharded"
    why = (
        "torch's distributed checkpoint cuts tensors anew for any number of ranks"
        if is_sharded
        else "the whole state is in one file, of which each rank takes its part"
    )
    kind = "SHARDED_STATE_DICT" if is_sharded else "FULL_STATE_DICT"
    return Way(
        "same state",
        why,
        "accelerate 1.15.0 utils/fsdp_utils.py `load_fsdp_model`, `load_fsdp_optimizer`",
        settings=(f"FSDP's state_dict_type stays {kind}: by it the loader looks for files",),
        sets=(f"pin.fsdp.state_dict={'sharded' if is_sharded else 'full'}",),
    )


def _fsdp_elsewhere(found: Checkpoint, _: Goal) -> Way:
    out = str(found.path.with_name(found.path.name + "-weights"))
    where = quote(str(found.path / "pytorch_model_fsdp_0"))
    merge = f"accelerate merge-weights {where} {quote(out)}"
    return Way(
        "weights alone",
        "a Trainer without FSDP refuses the folder",
        "transformers 5.23.0 trainer.py `_load_from_checkpoint`: only supported when using PyTorch "
        "FSDP; accelerate 1.15.0 commands/merge.py",
        (merge,) if found.kind == "fsdp-sharded" else (),
        (f"model: {out}, and no resume_from_checkpoint",),
        lost=_state(found),
    )


def _plain_same(_: Checkpoint, __: Goal) -> Way:
    return Way(
        "same state",
        "one file holds the whole state, which every rank reads",
        "transformers 5.23.0 trainer.py `_load_optimizer_and_scheduler`; accelerate 1.15.0 "
        "checkpointing.py `load_accelerator_state`",
    )


def _plain_to_zero(found: Checkpoint, _: Goal) -> Way:
    return Way(
        "weights alone",
        "DeepSpeed finds no global_step folder in it, and the Trainer fails",
        "transformers 5.23.0 integrations/deepspeed.py `deepspeed_load_checkpoint`",
        (),
        (_from_weights(found),),
        lost=_state(found),
    )


def _plain_to_fsdp(found: Checkpoint, _: Goal) -> Way:
    return Way(
        "weights alone",
        "FSDP's loader looks for pytorch_model_fsdp and finds none",
        "accelerate 1.15.0 utils/fsdp_utils.py `load_fsdp_model`, `load_fsdp_optimizer`",
        (),
        (_from_weights(found),),
        lost=_state(found),
    )


def _from_weights(found: Checkpoint) -> str:
    """What a new run is set to; a folder with an adapter alone is no model."""
    if found.adapter is None:
        return f"model: {found.path}, and no resume_from_checkpoint"
    base = found.adapter.get("base_model_name_or_path") or "its base"
    return (
        f"model: a folder with {found.path} merged into {base} (peft's `merge_and_unload`), and no "
        "resume_from_checkpoint"
    )


def _bare(found: Checkpoint, _: Goal) -> Way:
    return Way(
        "weights alone",
        "it holds no state of an optimizer",
        "transformers 5.23.0 trainer.py `_load_optimizer_and_scheduler`",
        (),
        (_from_weights(found),),
        lost=("the optimizer begins with moments of zero",) if found.kind != "weights" else (),
    )


def _unscheduled(found: Checkpoint, _: Goal) -> Way:
    return Way(
        "weights alone",
        "the Trainer reads the optimizer's state only where scheduler.pt lies beside it, and "
        "silently begins anew",
        "transformers 5.23.0 trainer.py `_load_optimizer_and_scheduler`",
        (),
        (_from_weights(found),),
        lost=_state(found),
    )


def _has_no_schedule(found: Checkpoint, _: Goal) -> bool:
    """Whether the Trainer wrote it without a schedule; a loop of accelerate may have had none."""
    return not found.has_schedule and (found.kind == "trainer" or found.progress is not None)


def _has_none(found: Checkpoint, _: Goal) -> bool:
    return not found.has_optimizer


_ZERO: Final[tuple[Kind, ...]] = ("deepspeed", "universal")
_FSDP: Final[tuple[Kind, ...]] = ("fsdp-sharded", "fsdp-full")
_PLAIN: Final[tuple[Kind, ...]] = ("trainer", "accelerate")
_ANY: Final[tuple[Family, ...]] = ("deepspeed", "fsdp", "plain")

_ROWS: Final = (
    _Row(("weights",), _ANY, _bare),
    _Row(_PLAIN, ("plain",), _bare, _has_none),
    _Row(_PLAIN, ("plain",), _unscheduled, _has_no_schedule),
    _Row(_FSDP, ("fsdp",), _unscheduled, _has_no_schedule),
    _Row(("deepspeed",), ("deepspeed",), _zero_same, _is_of_ranks),
    _Row(("deepspeed",), ("deepspeed",), _zero_other, _is_of_stage),
    _Row(("universal",), ("deepspeed",), _universal, _is_of_stage),
    _Row(_ZERO, ("deepspeed",), _zero_of_stage),
    _Row(_ZERO, ("fsdp", "plain"), _zero_elsewhere),
    _Row(_FSDP, ("fsdp",), _fsdp_same),
    _Row(_FSDP, ("deepspeed", "plain"), _fsdp_elsewhere),
    _Row(_PLAIN, ("plain",), _plain_same),
    _Row(_PLAIN, ("deepspeed",), _plain_to_zero),
    _Row(_PLAIN, ("fsdp",), _plain_to_fsdp),
)
