"""Training data that consists of several files or data sets, and how often an epoch sees each."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from tunec.schemas.data_paths import Chosen, chosen
from tunec.schemas.shape import Shape
from tunec.schemas.units import PositiveCount

MOST: int = 1000
"""How often an epoch may see one part; a program that takes a list gets its name this often."""


DataPath = Annotated[str, Field(min_length=1)]
"""A file, a directory or a data set name; a name may continue with `:config:split`."""


class DataSet(Shape):
    """A data set on the Hub of which a part is selected."""

    path: DataPath
    """A file, a directory or a data set name."""
    config: Annotated[str, Field(min_length=1, pattern=r"^[^:/\[\]]+$")] | None = None
    """The configuration (also called subset) of a data set on the Hub, such as `main`."""
    split: Annotated[str, Field(min_length=1)] | None = None
    """The split of a data set on the Hub: `train_sft`, `train[:10%]`; when absent, `train`, or
    `test` for evaluation on the training data set."""

    @property
    def name(self) -> str:
        """The path with its selected part."""
        found = chosen(self.path)
        return str(Chosen(found.path, self.config or found.config, self.split or found.split))


class Part(DataSet):
    """One of several files or data sets to train on."""

    samples: PositiveCount | None = None
    """The most samples that an epoch takes of it, from its first on; when absent, all of them."""
    times: Annotated[int, Field(ge=1, le=MOST)] = 1
    """How many times an epoch sees each of its samples."""


Mixture = Annotated[tuple[DataPath | Part, ...], Field(min_length=1)]
"""Parts in reading order; a part that is seen once may be given by its path alone."""


def parts(train: str | Part | tuple[str | Part, ...]) -> Iterator[Part]:
    """The parts that `data.train` names."""
    for each in train if isinstance(train, tuple) else (train,):
        yield Part(path=each) if isinstance(each, str) else each
