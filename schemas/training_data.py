"""The data section of a spec: where the training data is, and what a sample holds."""

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
    """Width in pixels; when absent, the size that the model's processor produces."""
    height: Whole | None = None
    """Height in pixels; when absent, the same as the width."""


class Data(Shape):
    """The training data and its samples."""

    train: DataPath | Part | Mixture
    """Training data: a file, a directory or a data set name, passed to the trainer unchanged; or
    part of a data set on the Hub: `{path: openai/gsm8k, config: main, split: train}`; or the first
    samples alone: `{path: a.jsonl, samples: 1000}`. Or a list of these; an epoch sees each entry
    once, or several times: `[a.jsonl, {path: b.jsonl, times: 2}]`."""
    references: tuple[DataPath, ...] | None = None
    """Folders of an edit model's reference images, each with an image of the same name for every
    image that is trained on: `[before]`; a model that takes several reads one from each."""
    evaluation: DataPath | DataSet | None = None
    """Evaluation data, in the same form as the training data; when absent, there is no
    evaluation."""
    format: DataFormat | None = None
    """The format of a record: `messages` with `role` and `content`, `sharegpt` (`conversations`
    with `from` and `value`), `alpaca` (`instruction`, `input`, `output`), `prompt-completion` (two
    texts, without a chat template) or `text`. When absent, the trainer's default, which for most is
    `messages`."""
    samples: PositiveCount | None = None
    """The number of training samples in an epoch, with repetitions; the number of steps follows
    from it."""
    sequence: Length | None = None
    """Most text tokens in one sample, without images; not for diffusion models."""
    lengths: str | dict[str, PositiveCount] | None = None
    """Sample lengths in tokens, from which packed rows, steps and truncation follow: `mean 1200`,
    the number of samples of each length (`{800: 1500, 2400: 500}`), or a JSON file: one written by
    `tunec data`, such a mapping, or a list in the order in which an epoch reads the data."""
    packing: bool = False
    """Whether several samples share one sequence."""
    images: Images | None = None
    """Images in a sample. When absent, one for a model that sees; none where samples are packed, in
    a format of texts alone, or for a model that is its maker's text model too, such as Gemma 3."""
    resolution: Whole | None = None
    """Side in pixels of the training images of a diffusion model."""
