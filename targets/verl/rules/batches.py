"""Numbers of prompts that verl compares."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place, also
from tunec.compiler.lints.facts.training_loop import is_number
from tunec.compiler.lints.rule import Finding, keys, rule

_ACTOR: Final = "actor_rollout_ref.actor"
_MINI: Final = f"{_ACTOR}.ppo_mini_batch_size"
_WHOLE: Final = "data.train_batch_size"
_DEFAULT: Final = 256
"""verl 0.8.0 to 0.9.1 trainer/config/actor/actor.yaml; workers/config/actor.py
`ActorConfig.validate` compares the two unless `use_dynamic_bsz` is on."""


@rule(
    "update-larger-than-its-batch",
    "error",
    "init",
    consumers=("verl",),
    reads=keys("verl", _WHOLE, _MINI),
)
def update_larger_than_its_batch(run: LintContext) -> Iterator[Finding]:
    """An update takes more prompts than a step has."""
    whole, mini = run.said("verl", _WHOLE), run.said("verl", _MINI)
    by_tokens = run.said("verl", f"{_ACTOR}.use_dynamic_bsz")
    if whole is None or not is_number(whole.value):
        return
    if run.hides("verl", _MINI, f"{_ACTOR}.use_dynamic_bsz"):
        return
    if by_tokens is not None and by_tokens.value is not False:
        return
    if mini is not None and is_number(mini.value) and whole.value < mini.value:
        yield _larger(whole, mini, mini.value)
    elif mini is None and whole.value < _DEFAULT and run.said("verl", _WORKERS) is not None:
        yield _larger(whole, None, _DEFAULT)


_WORKERS: Final = "actor_rollout_ref.model.path"


def _larger(whole: Place, mini: Place | None, size: float) -> Finding:
    return Finding(
        f"{_WHOLE} is {whole.value}, and an update takes {size}",
        (whole.label("refused"), *also(mini, "more than there are")),
        () if mini else (f"ppo_mini_batch_size is {_DEFAULT} unless it is said",),
        f"write {_MINI}: {whole.value}, or less",
        severity=None if mini else "warning",
    )
