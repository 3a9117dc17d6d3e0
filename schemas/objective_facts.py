"""The facts that set the objectives of training apart: a row for each."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from tunec.schemas.terms import ObjectiveKind


class ObjectiveFacts(Struct, frozen=True):
    """What sets an objective apart for passes, accounts and targets."""

    columns: tuple[str, ...] = ()
    """The columns of a record, where these are not the formats of given texts."""
    sequences: int = 1
    """Sequences of one sample: two of a pair of answers."""
    compares: bool = False
    """Whether the loss always asks a reference model."""
    generates: bool = False
    """Whether the trained model writes the answers."""
    compares_answers: bool = False
    """Whether the answers to one prompt are compared with each other."""
    values: bool = False
    """Whether a second model, the critic, is trained to give each token a value."""
    scores: bool = False
    """Whether the trained model gives each text one number, by a head of its own."""
    written_by: tuple[str, ...] = ()
    """The targets that write it, if these are few."""


OBJECTIVES: Final[Mapping[ObjectiveKind, ObjectiveFacts]] = {
    "sft": ObjectiveFacts(),
    "dpo": ObjectiveFacts(("chosen", "rejected"), sequences=2, compares=True),
    "grpo": ObjectiveFacts(("prompt",), generates=True, compares_answers=True),
    "ppo": ObjectiveFacts(("prompt",), generates=True, values=True, written_by=("verl",)),
    "reward": ObjectiveFacts(
        ("chosen", "rejected"), sequences=2, scores=True, written_by=("trl", "axolotl", "ms-swift")
    ),
}
"""The objectives by the name of their field in a spec."""
