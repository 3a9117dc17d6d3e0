"""Training data that is several files or data sets, and how often an epoch sees each."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from tunec.schemas.data_paths import Chosen, chosen
from tunec.schemas.shape import Shape

MOST: int = 1000
"""How often an epoch may see one part: a program that takes a list is given its name so often."""


DataPath = Annotated[str, Field(min_length=1)]
"""A file, a directory or a data set name; a name may go on with `:config:split`."""


class DataSet(Shape):
    """A data set on the Hub of which a part is meant."""

    path: DataPath
    """A file, a directory or a data set name."""
    config: Annotated[str, Field(min_length=1, pattern=r"^[^:/\[\]]+$")] | None = None
    """The configuration of a data set on the Hub, which is called subset, too: `main`."""
    split: Annotated[str, Field(min_length=1)] | None = None
    """The split of a data set on the Hub: `train_sft`, `train[:10%]`; when absent, `train`, and
    `test` to evaluate on the data that are trained on."""

    @property
    def name(self) -> str:
        """The path with what is meant of it, as slots have it."""
        found = chosen(self.path)
        return str(Chosen(found.path, self.config or found.config, self.split or found.split))


class Part(DataSet):
    """One of several files or data sets to train on."""

    times: Annotated[int, Field(ge=1, le=MOST)] = 1
    """How many times an epoch sees each of its samples."""


Mixture = Annotated[tuple[DataPath | Part, ...], Field(min_length=1)]
"""Parts in the order in which they are read, each by its path alone where it is seen once."""


def parts(train: str | Part | tuple[str | Part, ...]) -> Iterator[Part]:
    """What `data.train` names, part by part."""
    for each in train if isinstance(train, tuple) else (train,):
        yield Part(path=each) if isinstance(each, str) else each
