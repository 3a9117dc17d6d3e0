"""Sample lengths as `tunec data` stores them: a histogram, and the files that were measured."""

from typing import Annotated, Final, Literal

from pydantic import Field

from tunec.schemas.shape import Shape

MARK: Final = "tunec_lengths"
"""The key that identifies such a file."""
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
    """The tokenizer that counted the tokens."""

    model: str
    """The model that was named, a folder relative to the file of lengths; empty: only a folder of a
    tokenizer was named."""
    sha256: _Digest | None
    """Digest of tokenizer.json; none: tokens were estimated from characters."""
    template_sha256: _Digest | None = None
    """Digest of the chat template; none: no template was used."""


class KeptLengths(Shape):
    """What `tunec data -o` writes, and `data.lengths` names."""

    tunec_lengths: Literal[1]
    """Version of this file."""
    files: Annotated[tuple[MeasuredFile, ...], Field(min_length=1)]
    tokenizer: MeasuredBy
    form: str
    """The format of the records: `messages`, `prompt and completion`, `text` and so on."""
    counts: Annotated[tuple[_Pair, ...], Field(min_length=1)]
    """Pairs of a number of tokens and the number of samples with so many, sorted by tokens."""
    answers: tuple[tuple[Annotated[int, Field(ge=0, lt=2**31)], _Number], ...] = ()
    """Pairs of a number of tokens before the first answer and the number of samples with so
    many."""
    order: tuple[_Number, ...] = ()
    """Tokens of each sample in the order of an epoch; empty: not kept."""
