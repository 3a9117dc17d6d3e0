"""Files, or a file and --world-size, count processes differently."""

from collections.abc import Iterator

from tunec.compiler.ir.ledger import Rank
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    winner = run.world
    if winner is None:
        return
    for other in run.ledger.of("parallel.world"):
        place = run.place(other)
        if other.rank != Rank.OBSERVED or other.value == winner.value or place is None:
            continue
        first = run.place(winner)
        yield Finding(
            f"{other.value} processes here, {winner.value} by {winner.author}",
            (
                place.label(f"{other.value} processes"),
                *([first.label(f"{winner.value} processes", primary=False)] if first else []),
            ),
            (),
            "say one number",
        )


RULE = Rule(
    name="world-size-differs",
    severity="error",
    consequence="init",
    consumers=("accelerate", "torch", "deepspeed"),
    sources=(
        "accelerate 1.15.0 commands/launch.py: the flags and file of the launcher decide alone",
    ),
    check=_check,
)
