"""Settings that verl's classes or its engine refuse, and one that leaves no gradient."""

from typing import Final

from tunec.compiler.lints.rows import Row, rows
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
