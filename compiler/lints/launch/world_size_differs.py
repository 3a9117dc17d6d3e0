"""Files, or a file and --world-size, count processes differently."""

from collections.abc import Iterator

from tunec.compiler.ir.ledger import Definition, Rank
from tunec.compiler.lints.place import Place
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
        if first is not None and _is_another_command(first, place):
            continue
        if first is not None and _overrides(place, first):
            yield _finding((first, winner), (place, other), is_chosen=True)
        else:
            is_chosen = first is not None and _overrides(first, place)
            yield _finding((place, other), (first, winner), is_chosen=is_chosen)


def _finding(
    here: tuple[Place, Definition], by: tuple[Place | None, Definition], *, is_chosen: bool
) -> Finding:
    """One number, and the other that holds; `is_chosen`: by a flag that is made for it."""
    place, other = here
    first, winner = by
    return Finding(
        f"{other.value} processes here, {winner.value} by {winner.author}",
        (
            place.label(f"{other.value} processes"),
            *([first.label(f"{winner.value} processes", primary=False)] if first else []),
        ),
        ("a flag of the launcher takes the place of what its file says",) if is_chosen else (),
        "say one number",
        severity="note" if is_chosen else None,
        consequence="silent" if is_chosen else None,
    )


def _is_another_command(first: Place, place: Place) -> bool:
    """Whether one script starts both, as two runs."""
    both = first.document, place.document
    return all(each.kind == "launch" for each in both) and both[0].name == both[1].name


def _overrides(flag: Place, place: Place) -> bool:
    """Whether a flag of accelerate's launcher takes the place of a number in its own file."""
    launch = flag.document
    is_launch = launch.kind == "launch" and launch.value("launcher") == "accelerate"
    return is_launch and place.document.kind == "accelerate"


RULE = Rule(
    name="world-size-differs",
    severity="error",
    consequence="init",
    consumers=("accelerate", "torch", "deepspeed"),
    sources=(
        "accelerate 1.15.0 commands/launch.py: the flags and file of the launcher decide alone",
        (
            "accelerate 0.30.1 to 1.15.0 commands/launch.py `_validate_launch_command`: the file's "
            "num_processes where no flag says it; huggingface/open-r1 README: --num_processes=7"
        ),
    ),
    check=_check,
)
