"""A sharding strategy that FSDP does not have."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.fsdp.asked import Asked, asked, words
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_NAMES: Final = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
_OPTIONS: Final = (*(name.lower() for name in _NAMES), "offload", "auto_wrap")
_OF_TWO: Final = ("full_shard", "shard_grad_op", "offload", "auto_wrap")


def _check(run: Run) -> Iterator[Finding]:
    for each in asked(run):
        if each.who == "trainer":
            yield from _options(run, each)
        elif each.who == "accelerate" and each.version == 1:
            yield from _strategy(each)


def _strategy(each: Asked) -> Iterator[Finding]:
    place = each.get("sharding_strategy")
    if place is None:
        return
    value = str(place.value)
    if value.upper() in _NAMES or value in ("1", "2", "3", "4", "5", "_HYBRID_SHARD_ZERO2"):
        return
    yield Finding(
        f"fsdp_sharding_strategy {value} is none",
        (place.label("refused"),),
        (f"the strategies are {', '.join(_NAMES)}, or 1 to 5 in that order",),
        "write FULL_SHARD, or the one that is meant",
    )


def _options(run: Run, each: Asked) -> Iterator[Finding]:
    said = words(each.on)
    known = _OF_TWO if each.version == 2 else _OPTIONS
    for word in said:
        if word not in known:
            yield Finding(
                f"fsdp option {word} is refused",
                (each.on.label("refused"),),
                (
                    f"the options are {', '.join(known)}, apart by spaces, in lower case",
                    *(("FSDP2 has no hybrid or unsharded strategy",) if word in _OPTIONS else ()),
                ),
                "write full_shard auto_wrap",
                consequence="parse",
            )
    if run.runs("transformers<=5.6.2") is True and said == ("offload",):
        yield Finding(
            "fsdp offload stands alone: nothing says how to shard",
            (each.on.label("refused"),),
            (),
            "write full_shard offload",
            consequence="parse",
        )


RULE = Rule(
    name="fsdp-strategy-refused",
    severity="error",
    consequence="init",
    consumers=(
        "accelerate",
        "transformers",
    ),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py "
            "`FullyShardedDataParallelPlugin.__post_init__`: ShardingStrategy(int), "
            "ShardingStrategy[name]; utils/constants.py FSDP_SHARDING_STRATEGY"
        ),
        (
            "transformers 4.40.2 to 5.6.2 training_args.py: FSDPOption(word); 5.15.1, 5.23.0 "
            "`_apply_legacy_fsdp_to_config`: Unknown `fsdp` option, is only available with FSDP1"
        ),
    ),
    check=_check,
)
