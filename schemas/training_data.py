"""The data section of a spec: its sources, how often an epoch sees each, and what samples hold."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from tunec.schemas.data_paths import Chosen, chosen
from tunec.schemas.shape import Shape
from tunec.schemas.terms import DataFormat, LossOn
from tunec.schemas.units import Length, PositiveCount, Whole

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

    def seen_of(self, count: int) -> int:
        """The samples of an epoch, with repetitions, if there are `count` of them."""
        return self.times * (count if self.samples is None else min(count, self.samples))


Mixture = Annotated[tuple[DataPath | Part, ...], Field(min_length=1)]
"""Parts in reading order; a part that is seen once may be given by its path alone."""


def parts(train: str | Part | tuple[str | Part, ...]) -> Iterator[Part]:
    """The parts that `data.train` names."""
    for each in train if isinstance(train, tuple) else (train,):
        yield Part(path=each) if isinstance(each, str) else each


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
    chat_template: Annotated[str, Field(min_length=1)] | None = None
    """How a conversation becomes one text: the path of a Jinja file, or `plain`, which names the
    roles in words and ends an answer with the tokenizer's end token. When absent, the tokenizer's
    own template, which most base models lack."""
    loss_on: LossOn | None = None
    """Which tokens bear the loss: those of `answers` (what the assistant says, or the completion
    of a prompt), or `all`. When absent, those that the trainer takes by default, which differ."""
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
    """Side in pixels of the training images of a diffusion model; of another shape, the side of a
    square of the same area."""
    frames: Whole | None = None
    """Frames of a training clip, for a diffusion model that paints clips: longer clips are cut to
    them, and shorter ones are left out. When absent, it trains on pictures."""
