"""What a model is trained on, as a spec has it: where the data lie, and what a sample is."""

from typing import Annotated

from pydantic import Field

from tunec.schemas.mixture import DataPath, DataSet, Mixture, Part
from tunec.schemas.shape import Shape
from tunec.schemas.terms import DataFormat
from tunec.schemas.units import Length, PositiveCount, Whole


class Images(Shape):
    """Images in a sample, for models that see."""

    per_sample: Annotated[int, Field(ge=0, le=10_000)] = 1
    """Images in one sample."""
    width: Whole | None = None
    """Pixels; when absent, the side that the model's processor makes."""
    height: Whole | None = None
    """Pixels; when absent, as wide as high."""


class Data(Shape):
    """What the model is trained on."""

    train: DataPath | Part | Mixture
    """Training data: a file, a directory or a data set name, passed to the trainer unchanged; of a
    data set on the Hub a part: `{path: openai/gsm8k, config: main, split: train}`. Or a list of
    them, of which an epoch sees each once, or as often as it says:
    `[a.jsonl, {path: b.jsonl, times: 2}]`."""
    evaluation: DataPath | DataSet | None = None
    """Evaluation data, written as the training data are; absent: no evaluation."""
    format: DataFormat | None = None
    """What a record looks like: `messages` with `role` and `content`, `sharegpt` (`conversations`
    with `from` and `value`), `alpaca` (`instruction`, `input`, `output`), `prompt-completion`
    (two texts, without a chat template) or `text`. Absent: as the trainer reads data by default,
    which for most is `messages`."""
    samples: PositiveCount | None = None
    """How many training samples an epoch sees, each counted as often as it is seen; how many steps
    the run makes follows from it."""
    sequence: Length | None = None
    """Most text tokens in one sample, images not counted; not for diffusion models."""
    lengths: str | dict[str, PositiveCount] | None = None
    """Tokens of the samples of an epoch, which make packed rows, steps and what is cut known:
    `mean 1200`, how many samples have how many (`{800: 1500, 2400: 500}`), or a JSON file: one that
    `tunec data` wrote, such a mapping, or a list in the order in which an epoch's data are read."""
    packing: bool = False
    """Whether several samples share one sequence."""
    images: Images | None = None
    """Images in a sample."""
    resolution: Whole | None = None
    """Side in pixels of the training images of a diffusion model."""
