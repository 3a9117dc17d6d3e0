"""Keys of rewards that verl moved, and no longer reads at their old place."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.rows import Row, found, reads_of
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.frozen import replace

_SINCE: Final = "verl>=0.9"
_MOVED: Final = {
    "custom_reward_function.path": "reward.custom_reward_function.path, and .name",
    "reward_model.reward_manager": "reward.reward_manager.name",
    "reward_model.model.path": "reward.reward_model.model_path",
    "sandbox_fusion.url": "reward.sandbox_fusion.url",
}
_ROWS: Final = tuple(
    Row(
        f"verl:{old}?",
        "{0.path} has no effect",
        "without effect",
        "the section is kept for older files, and main_ppo of verl 0.9 no longer looks at it",
        f"write {new}",
        since=_SINCE,
    )
    for old, new in _MOVED.items()
)
"""verl 0.8.0 trainer/main_ppo.py calls `migrate_legacy_reward_impl`; 0.9.0 and 0.9.1 do not."""


@rule("error", "silent", consumers=("verl",), reads=reads_of(_ROWS))
def reward_under_its_former_name(run: LintContext) -> Iterator[Finding]:
    """A reward is configured at an old place, and verl computes its own instead."""
    is_known = run.runs(_SINCE) is True and run.release("verl").is_named
    for each in found(_ROWS, run):
        yield each if is_known else replace(each, severity="note")
