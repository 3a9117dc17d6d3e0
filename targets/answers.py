"""Over which tokens of a conversation a trainer computes the loss: rows of `data.loss_on`.

TRL takes every token of a conversation, a user's too, unless `assistant_only_loss` is on (trl
0.19.1 to 1.16.0 trainer/sft_config.py). Others take answers alone, unless a key says otherwise.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.consumers.moved_keys import Carry
from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Cannot, Entry, Json
from tunec.schemas.terms import LossOn

Values = Mapping[str, Json]
SLOT: Final = "data.loss_on"
KEY: Final = "assistant_only_loss"
_TRL: Final = "trl 0.19.1 to 1.16.0 trainer/sft_config.py `SFTConfig`"
UNSAID: Final = ((ALWAYS, {SLOT: None}),)
"""A file without the key leaves it to its program."""


def _row(key: str, words: Mapping[LossOn, Json], source: str) -> Entry:
    """The row of a key with a value for answers, and one for all tokens."""

    def write(plan: Plan) -> Values:
        said = plan.data.loss_on
        return {} if said is None else {key: words[said]}

    def read(found: Values) -> Mapping[str, Any]:
        said = [each for each, word in words.items() if word == found[key]]
        return {SLOT: said[0]} if said else {}

    return Entry((key,), (SLOT,), write, read, source, absent=UNSAID, yields=True)


class Answers(Struct, frozen=True):
    """A trainer's key for it, as a row, and what carries TRL's arguments to it."""

    row: Entry
    does: Callable[[Values], Values]
    """What the program does with the keys of a file, as TRL's argument says it."""
    takes: tuple[Carry, ...]


def answers_by(key: str, usual: Json, other: Json, source: str, *, usually: bool = True) -> Answers:
    """A key that is `usual` or absent where a trainer takes answers alone, and else `other`.

    If `usually` is false, it is the other way round.
    """
    answers, every = (usual, other) if usually else (other, usual)

    def does(found: Values) -> Values:
        said = found.get(key, usual)
        return {KEY: said == answers} if said in (answers, every) else {}

    def taken(found: Values) -> Values | None:
        return None if found[KEY] is usually else {key: other}

    row = _row(key, {"answers": answers, "all": every}, source)
    return Answers(row, does, (Carry((KEY,), taken, f"{source}; {_TRL}"),))


def only_answers(trainer: str) -> Mapping[str, Cannot]:
    """The refusal of a trainer that computes the loss of answers alone, and has no key for it."""
    reason = f"{trainer} computes the loss over answers alone"
    return {SLOT: Cannot(reason, loses=True, harmless=(None, "answers"))}


def answers_alone(beside: Callable[[Values], Values]) -> Callable[[Values], Values]:
    """What a trainer does that has no key for it and takes answers alone, beside what else."""
    return lambda found: {**beside(found), KEY: True}


def every_token(found: Values) -> Values:
    """What TRL does, in releases without the argument too."""
    del found
    return {KEY: False}
