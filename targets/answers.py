"""Over which tokens of a conversation a trainer computes the loss, as TRL's argument says it.

TRL takes every token of a conversation, a user's too, unless `assistant_only_loss` is on (trl
0.19.1 to 1.16.0 trainer/sft_config.py). Others take answers alone, unless a key says otherwise.
"""

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from tunec.compiler.consumers.moved_keys import Carry
from tunec.compiler.target import Json

Values = Mapping[str, Json]
KEY: Final = "assistant_only_loss"
_PROMPTS: Final = "completion_only_loss"
_TRL: Final = "trl 0.19.1 to 1.16.0 trainer/sft_config.py `SFTConfig`"


class Answers(Struct, frozen=True):
    """A trainer's key for it, and what carries the key to TRL's argument and back."""

    does: Callable[[Values], Values]
    """What the program does with the keys of a file."""
    carry: Carry
    takes: tuple[Carry, ...]


def answers_by(key: str, usual: Json, other: Json, source: str, *, usually: bool = True) -> Answers:
    """A key that is `usual` or absent where a trainer takes answers alone, and else `other`.

    If `usually` is false, it is the other way round.
    """
    meaning = ((usual, usually), (other, not usually))

    def does(found: Values) -> Values:
        said = [is_alone for each, is_alone in meaning if each == found.get(key, usual)]
        return {KEY: said[0]} if said else {}

    def carried(found: Values) -> Values | None:
        said = does(found)
        return said if said.get(KEY, True) else None  # what TRL does by itself

    def taken(found: Values) -> Values | None:
        return None if found[KEY] is usually else {key: other}

    def of_prompts(found: Values) -> Values:
        return {key: other} if usually and found[_PROMPTS] is False else {}

    sources = f"{source}; {_TRL}"
    takes = (Carry((KEY,), taken, sources), Carry((_PROMPTS,), of_prompts, sources))
    return Answers(does, Carry((key,), carried, sources), takes)


def answers_alone(beside: Callable[[Values], Values]) -> Callable[[Values], Values]:
    """What a trainer does that has no key for it and takes answers alone, beside what else."""
    return lambda found: {**beside(found), KEY: True}


def every_token(found: Values) -> Values:
    """What TRL does, in releases without the argument too."""
    del found
    return {KEY: False}
