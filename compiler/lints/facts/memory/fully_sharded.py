"""The FSDP of a run as the memory account knows it, from what its files ask."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.facts.fsdp import Asked, asked, is_false, is_true, words
from tunec.schemas.frozen import replace

if TYPE_CHECKING:
    from tunec.compiler.ir.slots import Fsdp
    from tunec.schemas.terms import FsdpSharding

_STRATEGIES: Final[Mapping[str, "FsdpSharding"]] = {
    "1": "full",
    "FULL_SHARD": "full",
    "2": "grad_op",
    "SHARD_GRAD_OP": "grad_op",
    "3": "none",
    "NO_SHARD": "none",
    "4": "hybrid",
    "HYBRID_SHARD": "hybrid",
}
"""torch 2.13 `distributed/fsdp/api.py`, `ShardingStrategy`, by name and by the number that
accelerate 1.15 `utils/constants.py` gives each (`FSDP_SHARDING_STRATEGY`)."""

_SLOTS: Final = ("version", "sharding", "wrap", "offload_params", "efficient_loading")
"""What a program's own table says of its FSDP."""


def is_fully_sharded(run: LintContext) -> bool:
    """Whether any file turns FSDP on, or a program does that has its own."""
    return any(True for _ in asked(run)) or run.value("parallel.engine") == "fsdp"


def fsdp_of(run: LintContext) -> "Fsdp | None":
    """The settings of the file that is read last; None for a sharding that no slot can ask for.

    What is not told is what both accelerate and transformers do unasked: all is sharded, and each
    layer is a unit of its own, without which FSDP takes more.
    """
    from tunec.compiler.analyses.memory.workload import USUAL_FSDP

    files = list(asked(run))
    if not files:
        said = {name: run.value(f"fsdp.{name}") for name in _SLOTS}
        return replace(USUAL_FSDP, **{k: each for k, each in said.items() if each is not None})
    each = files[-1]
    sharding = _sharding(each)
    if sharding is None:
        return None

    policy = each.get("auto_wrap_policy")
    whole = policy is not None and str(policy.value).upper() == "NO_WRAP"
    return replace(
        USUAL_FSDP,
        version=each.version or USUAL_FSDP.version,
        sharding=sharding,
        offload_params=_offloads(each),
        wrap="none" if whole else "transformer",
        efficient_loading=not is_false(each.get("cpu_ram_efficient_loading")),
        checkpointing=is_true(each.get("activation_checkpointing")),
    )


def _sharding(each: Asked) -> "FsdpSharding | None":
    if each.version != 1:
        return "grad_op" if is_false(each.get("reshard_after_forward")) else "full"
    said = each.get("sharding_strategy", "reshard_after_forward")
    if said is not None:
        return _STRATEGIES.get(str(said.value).upper())
    options = [word.upper() for word in words(each.on) if "SHARD" in word.upper()]
    return _STRATEGIES.get(options[0]) if options else "full"


def _offloads(each: Asked) -> bool:
    return is_true(each.get("offload_params")) or "offload" in words(each.on)
