"""A cosine with restarts that never restarts."""

from collections.abc import Iterator

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.schedule.asked import arguments_of, is_overridden


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("trainer"):
        kind = document.get("lr_scheduler_type")
        if kind is None or kind.value != "cosine_with_restarts" or document.is_view:
            continue
        given = document.get("lr_scheduler_kwargs")
        arguments = arguments_of(given)
        if arguments is None or "lr_scheduler_kwargs" in document.unknown or is_overridden(run):
            continue
        if arguments.get("num_cycles", 1) == 1:
            yield Finding(
                "cosine_with_restarts with one cycle is a plain cosine",
                (
                    kind.label("never restarts"),
                    *([given.label("", primary=False)] if given is not None else []),
                ),
                ("num_cycles is 1 unless lr_scheduler_kwargs says more",),
                "write lr_scheduler_kwargs: {num_cycles: 3}, or lr_scheduler_type: cosine",
            )


RULE = Rule(
    name="restarts-of-one-cycle",
    severity="warning",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 optimization.py "
            "`get_cosine_with_hard_restarts_schedule_with_warmup`: num_cycles=1"
        ),
    ),
    check=_check,
)
