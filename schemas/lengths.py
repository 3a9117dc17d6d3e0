"""Lengths of samples as `tunec data` keeps them: a histogram, and what it was measured of."""

from typing import Annotated, Final, Literal

from pydantic import Field

from tunec.schemas.shape import Shape

MARK: Final = "tunec_lengths"
"""The key by which such a file is known."""
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Number = Annotated[int, Field(gt=0, lt=2**31)]
_Pair = tuple[_Number, _Number]


class MeasuredFile(Shape):
    """A data file as it was read."""

    path: Annotated[str, Field(min_length=1)]
    """Relative to the file of lengths."""
    bytes: Annotated[int, Field(ge=0)]
    sha256: _Digest
    samples: _Number
    times: _Number = 1
    """How often an epoch sees it."""


class MeasuredBy(Shape):
    """What turned text into tokens."""

    model: str
    """The model that was named; empty where a folder was."""
    sha256: _Digest | None
    """Of tokenizer.json; none: tokens were reckoned from characters."""
    template_sha256: _Digest | None = None
    """Of the chat template; none: none was used."""


class KeptLengths(Shape):
    """What `tunec data -o` writes, and `data.lengths` names."""

    tunec_lengths: Literal[1]
    """Version of this file."""
    files: Annotated[tuple[MeasuredFile, ...], Field(min_length=1)]
    tokenizer: MeasuredBy
    form: str
    """What the records are: `messages`, `prompt and completion`, `text` and so on."""
    counts: Annotated[tuple[_Pair, ...], Field(min_length=1)]
    """Pairs of tokens and of how many samples have so many, by their tokens."""
    answers: tuple[tuple[Annotated[int, Field(ge=0, lt=2**31)], _Number], ...] = ()
    """Pairs of tokens before the first answer and of how many samples have so many."""
    order: tuple[_Number, ...] = ()
    """Tokens of each sample in the order of an epoch; empty: not kept."""
