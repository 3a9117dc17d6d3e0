"""Settings that verl's classes or its engine refuse, and one that leaves no gradient."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.rows import Row, found, reads_of, rows
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.frozen import replace
from tunec.targets.verl.rules.classes import OF_ENGINES

_REFUSED: Final = "verl refuses {0.path} {0.value}"


def _word(key: str, words: str, help: str, why: str = "", until: str = "") -> Row:
    """A key whose value is not one of the accepted words."""
    return Row(f"verl:{key}!={words}", _REFUSED, "not taken", why, help, since=until)


_NO_PADDING: Final = "the engine takes samples without padding, and fails at its first batch"

SETTING_REFUSED_BY_VERL: Final = rows(
    "setting-refused-by-verl",
    "error",
    "parse",
    consumers=("verl",),
    rows=(
        _word(
            "optim.lr_scheduler_type",
            "constant|cosine",
            "write constant or cosine",
            "the rate falls along a cosine, or stays constant",
        ),
        _word("engine.strategy", "fsdp|fsdp2|fsdp_turbo", "write fsdp or fsdp2"),
        Row(
            "verl:engine.strategy=fsdp_turbo",
            _REFUSED,
            "not taken",
            help="write fsdp or fsdp2, or use verl 0.9.1",
            since="verl<0.9.1",
        ),
        _word(
            "data.truncation",
            "error|left|right & no actor_rollout_ref{}",
            "write error, left or right",
        ),
        _word("data.pad_mode", "no_padding", "write no_padding", _NO_PADDING),
        Row(
            "verl:engine.ulysses_sequence_parallel_size>1",
            "{0.key} {0.value} cannot be combined with {1.path} {1.value}",
            "refused",
            "ranks split one sequence of all samples",
            "remove model.use_remove_padding, which is true by default",
            beside=("model.use_remove_padding=false",),
        ),
        *OF_ENGINES,
    ),
)

CLIPPED_TO_NOTHING: Final = rows(
    "gradients-clipped-to-nothing",
    "error",
    "silent",
    consumers=("verl",),
    rows=(
        Row(
            "verl:optim.clip_grad|actor_rollout_ref.actor.optim.clip_grad=0",
            "{0.path} 0 leaves no gradient",
            "every gradient becomes 0",
            "verl always clips: a norm of 0 does not turn it off",
            "write a norm above 0",
        ),
    ),
)


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
