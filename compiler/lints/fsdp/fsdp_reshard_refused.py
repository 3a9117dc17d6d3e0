"""A way of resharding in the words of the other FSDP."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.fsdp.asked import TRUTHS, Asked, asked
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_NAMES: Final = (
    *("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2"),
    *("1", "2", "3", "4", "5"),
)


def _check(run: Run) -> Iterator[Finding]:
    for each in asked(run):
        place = each.get("reshard_after_forward")
        if place is None or each.who == "axolotl":
            continue
        value = str(place.value).lower()
        if each.version == 2 and value not in TRUTHS:
            keeps = value == "shard_grad_op"
            fix = Fix((place.replaced(not keeps),), "safe") if value in _NAMES else None
            yield Finding(
                f"reshard_after_forward {place.value} is refused: FSDP2 takes true or false",
                (place.label("refused"),),
                ("true is the old FULL_SHARD, false the old SHARD_GRAD_OP",),
                f"write {str(not keeps).lower()}",
                fix,
                consequence="parse" if each.who == "trainer" else None,
            )
        elif each.version == 1 and _is_truth(each, value) and run.runs("transformers>=5"):
            yield Finding(
                f"reshard_after_forward {value} is refused: FSDP1 takes a strategy's name",
                (place.label("refused"),),
                (),
                "write full_shard, or version: 2",
                consequence="parse",
            )


def _is_truth(each: Asked, value: str) -> bool:
    return each.who == "trainer" and value not in _NAMES


RULE = Rule(
    name="fsdp-reshard-refused",
    severity="error",
    consequence="init",
    consumers=(
        "accelerate>=1.6",
        "transformers",
    ),
    sources=(
        (
            "accelerate 1.6.0 to 1.15.0 utils/dataclasses.py "
            "`FullyShardedDataParallelPlugin.__post_init__`: str_to_bool, invalid truth value; "
            "ShardingStrategy[name]"
        ),
        (
            "transformers 5.0.0 to 5.23.0 training_args.py `_process_fsdp_args`: str_to_bool with "
            "version 2, the name with version 1"
        ),
    ),
    check=_check,
)
