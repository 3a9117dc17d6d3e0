"""DDP looks for unused parameters in a graph that reentrant checkpointing runs twice."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.batch.counts import engine_of
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    find = run.said("trainer", "ddp_find_unused_parameters")
    checks = run.said("trainer", "gradient_checkpointing", "activation_checkpointing")
    if find is None or checks is None or find.value is not True or checks.value is not True:
        return
    world = run.value("parallel.world")
    reentrant = _is_reentrant(run)
    if engine_of(run) or world == 1 or reentrant is False:
        return
    yield Finding(
        "ddp_find_unused_parameters with reentrant checkpointing",
        (find.label("looks before the graph is there"), checks.label("", primary=False)),
        (
            "RuntimeError in the backward pass: expected to mark a variable ready only once",
            (
                "reentrant checkpointing builds each layer's graph in the backward pass, after "
                "DDP has "
                "looked which parameters take part"
            ),
        ),
        "remove ddp_find_unused_parameters, or write gradient_checkpointing_kwargs: "
        "{use_reentrant: false}",
        Fix((find.removed(),), "safe"),
        certain=reentrant is True,
    )


def _is_reentrant(run: Run) -> bool | None:
    """Written, or left to a release where it is the default; None: nobody names the release."""
    said = run.said("trainer", "gradient_checkpointing_kwargs.use_reentrant")
    if said is not None:
        return said.value is True
    kwargs = run.said("trainer", "gradient_checkpointing_kwargs")
    return run.runs("transformers<5") if kwargs is None else False


RULE = Rule(
    name="unused-parameters-with-checkpointing",
    severity="error",
    consequence="step",
    consumers=("transformers",),
    sources=(
        (
            "torch 2.13.0 utils/checkpoint.py `checkpoint`: the reentrant variant does not "
            "work with "
            "DDP's find_unused_parameters; csrc/distributed/c10d/reducer.cpp: mark a variable "
            "ready "
            "only once"
        ),
        (
            "transformers 4.40.2 to 4.57.6 modeling_utils.py `gradient_checkpointing_enable`: "
            "use_reentrant True; 5.0.0 to 5.23.0: False"
        ),
    ),
    check=_check,
)
