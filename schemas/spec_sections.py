"""The smaller sections of a spec: the user's own script, the job, the task and the evaluation."""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from tunec.schemas.models.architecture import ClassifierKind
from tunec.schemas.objectives import ONE_FIELD
from tunec.schemas.shape import Shape
from tunec.schemas.units import Duration, Length, Whole


class Script(Shape):
    """A script that is started instead of the trainer's own program."""

    script: Annotated[str, Field(min_length=1)] | None = None
    """A file, relative to the spec (`train.py`), or a module (`mine.train`)."""
    arguments: tuple[str, ...] = ()
    """Arguments of the script. A file of the bundle is named by its path there
    (`huggingface/training_args.yaml`), any other file relative to the spec."""

    @model_validator(mode="after")
    def _for_a_script(self) -> Self:
        if self.arguments and self.script is None:
            raise ValueError("arguments are for a script of your own: give `script` too")
        return self


Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._,+-]*$", max_length=200)]
"""A name as clusters give them; Slurm takes several partitions with commas between."""
_Label = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63)]
_Image = Annotated[str, Field(pattern=r"^[A-Za-z0-9/.~_-][A-Za-z0-9/.~_:@#+-]*$", max_length=500)]
_Infra = Annotated[str, Field(pattern=r"^[a-z0-9*-]+(/[A-Za-z0-9*_-]+){0,2}$", max_length=200)]
_Line = Annotated[str, Field(pattern=r"^[^\r\n]+$", max_length=2000)]


class Job(Shape):
    """Settings of the cluster's job; each cluster manager uses those that it supports."""

    queue: Word | None = None
    """Queue that takes the job: a partition of Slurm, a local queue of Kueue on Kubernetes."""
    account: Word | None = None
    """Account that the job is charged to (Slurm)."""
    qos: Word | None = None
    """Quality of service (Slurm)."""
    time: Duration | None = None
    """Time limit of the run: `12h`, `90min`, `2d`; when absent, Slurm gets the expected time with a
    margin, and others get none."""
    image: _Image | None = None
    """Container image that the run starts in: Slurm by pyxis, Kubernetes, SkyPilot by docker; when
    absent, PyTorch's own on Kubernetes, with a build of torch that has the devices' kernels."""
    setup: tuple[_Line, ...] = ()
    """Shell lines on each node before the run starts: `module load cuda`, `. env/bin/activate`."""
    namespace: _Label | None = None
    """Namespace of the job (Kubernetes)."""
    volume: _Label | None = None
    """PersistentVolumeClaim that holds code, data and output (Kubernetes): the run starts in its
    root; where there are several nodes, each of them writes to it."""
    infra: _Infra | None = None
    """Where machines are rented, in SkyPilot's form: `aws`, `gcp/us-central1`, `k8s/my-context`."""
    spot: bool = False
    """Whether machines may be preempted during the run (SkyPilot)."""


class Labels(Shape):
    """The classes of a classifier."""

    labels: Whole = 2
    """The number of classes; 1: regression."""


class Task(Shape):
    """The head on the model's body: exactly one of these."""

    model_config = ONE_FIELD

    sequence_classification: Labels | None = None
    """A label for each sequence."""
    token_classification: Labels | None = None
    """A label for each token."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one task, not {' and '.join(given) or 'none'}")
        return self

    @property
    def asked(self) -> tuple[ClassifierKind, int]:
        """The kind of model, and the number of labels."""
        if self.sequence_classification is not None:
            return "sequence-classifier", self.sequence_classification.labels
        assert self.token_classification is not None  # noqa: S101  one of the two is given
        return "token-classifier", self.token_classification.labels


ONE_NUMBER: Final = Task.model_construct(sequence_classification=Labels.model_construct(labels=1))
"""The head of a reward model: one number for each sequence."""
A_VALUE: Final = Task.model_construct(token_classification=Labels.model_construct(labels=1))
"""The head of a critic: one number for each token."""


class Answers(Shape):
    """Answers that the model generates for the prompts of the evaluation data."""

    completion: Length | None = None
    """Most tokens of an answer; when absent, half of `data.sequence` if prompt and answer share one
    sequence, and all of it for an encoder-decoder."""
    beams: Annotated[int, Field(ge=1, le=256)] = 1
    """Candidates that are generated at once, of which the best is the answer; 1: no beam search."""


def _answers_unasked(value: Any) -> Any:
    return {} if value is True else value


class Evaluation(Shape):
    """What evaluation computes besides the loss: one of these, or nothing."""

    model_config = ConfigDict(json_schema_extra={"not": {"required": ["generate", "metrics"]}})

    generate: Annotated[
        Answers | None,
        BeforeValidator(_answers_unasked, json_schema_input_type=Literal[True] | Answers | None),
    ] = None
    """Let the model generate answers, which a metric of the training script compares."""
    metrics: bool = False
    """Whether a metric of the training script is computed from all logits, which are kept for
    it."""

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.generate is not None and self.metrics:
            raise ValueError("give generate or metrics: one metric reads answers, another logits")
        return self
