"""Training data that is several files or data sets, and how often an epoch sees each."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from tunec.schemas.shape import Shape

MOST: int = 1000
"""How often an epoch may see one part: a program that takes a list is given its name so often."""


DataPath = Annotated[str, Field(min_length=1)]
"""A file, a directory or a data set name."""


class Part(Shape):
    """One of several files or data sets to train on."""

    path: DataPath
    """A file, a directory or a data set name."""
    times: Annotated[int, Field(ge=1, le=MOST)] = 1
    """How many times an epoch sees each of its samples."""


Mixture = Annotated[tuple[DataPath | Part, ...], Field(min_length=1)]
"""Parts in the order in which they are read, each by its path alone where it is seen once."""


def parts(train: str | tuple[str | Part, ...]) -> Iterator[Part]:
    """What `data.train` names, part by part."""
    for each in (train,) if isinstance(train, str) else train:
        yield Part(path=each) if isinstance(each, str) else each
