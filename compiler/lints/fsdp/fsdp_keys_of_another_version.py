"""Keys of the other FSDP, which this one does not read."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.lints.fsdp.asked import Asked, asked
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_SAME: Final[Mapping[str, tuple[str, ...]]] = {
    "sharding_strategy": ("full_shard", "1"),
    "use_orig_params": ("true",),
    "sync_module_states": ("true",),
    "forward_prefetch": ("false",),
    "backward_prefetch": ("no_prefetch", "none"),
    "limit_all_gathers": ("true",),
}
"""Keys of FSDP1, with the values that FSDP2 has anyway."""
_NEWER: Final[Mapping[str, tuple[str, ...]]] = {"reshard_after_forward": ("true", "full_shard")}
"""Keys of FSDP2 that accelerate does not pass on to FSDP1."""


def _check(run: Run) -> Iterator[Finding]:
    for each in asked(run):
        if each.who == "axolotl":
            continue
        table = _SAME if each.version == 2 else _NEWER if _is_old(each) else {}
        said = [
            place
            for key, same in table.items()
            if (place := each.get(key)) and str(place.value).lower() not in same
        ]
        if not said:
            continue
        names = ", ".join(place.path.rpartition(".")[2] for place in said)
        yield Finding(
            f"FSDP{each.version} does not read {names}",
            (
                *(place.label("not read", primary=place is said[0]) for place in said),
                *_version(each),
            ),
            (_HOW[each.version or 2],),
            "write reshard_after_forward: false for the old SHARD_GRAD_OP, and remove the others"
            if each.version == 2
            else "write fsdp_sharding_strategy, or use version 2",
        )


_HOW: Final = {
    1: "accelerate gives FSDP1 its sharding strategy, FULL_SHARD where none is written",
    2: "FSDP2 shards each parameter by itself: reshard_after_forward alone settles the strategy",
}


def _is_old(each: Asked) -> bool:
    return each.version == 1 and each.who == "accelerate"


def _version(each: Asked) -> tuple[Label, ...]:
    place = each.get("version") or each.on
    return (place.label("", primary=False),)


RULE = Rule(
    name="fsdp-keys-of-another-version",
    severity="warning",
    consequence="silent",
    consumers=(
        "accelerate",
        "transformers",
    ),
    sources=(
        (
            "accelerate 1.6.0 to 1.15.0 utils/dataclasses.py "
            "`FullyShardedDataParallelPlugin.__post_init__`: with fsdp_version 2 the environment of"
            " these keys is not read; with 1 sharding_strategy goes before reshard_after_forward"
        ),
        (
            "accelerate 1.15.0 utils/launch.py `prepare_multi_gpu_env`: FSDP_SHARDING_STRATEGY is "
            "always set"
        ),
        "transformers 5.15.1, 5.23.0 training_args.py `_process_fsdp_args`",
    ),
    check=_check,
)
