"""The spec: what a person wants to train, on what, inside what memory.

Every field says an intent, never a consumer's key. Descriptions are the field's own docstrings and
go into the generated JSON Schema, which editors show. Defaults are constructed, not validated: that
spares building a validator for each of their shapes (tests hold them to be valid).
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from tunec.schemas.evaluation import Evaluation
from tunec.schemas.hardware.profile import Cluster
from tunec.schemas.job import Job
from tunec.schemas.mixture import DataPath
from tunec.schemas.objectives import ONE_FIELD, Objective, ObjectiveName, Sft
from tunec.schemas.script import Script
from tunec.schemas.shape import Shape
from tunec.schemas.task import Task
from tunec.schemas.terms import (
    Attention,
    Engine,
    FloatDtype,
    Launcher,
    OptimizerName,
    ScheduleKind,
)
from tunec.schemas.training_data import Data
from tunec.schemas.units import INT64, Budget, Count, Positive, PositiveCount, Share, Whole


class InlineModel(Shape):
    """A model that the catalogue does not have, by the facts of its own config."""

    path: str
    """What `from_pretrained` is given: a repository name or a directory."""
    config: dict[str, Any] | str
    """The model's config.json: its contents, or the path of the file beside this spec."""
    stored_dtype: FloatDtype = "bf16"
    """The dtype of the published weights."""


class Full(Shape):
    """Train the model's own weights."""

    freeze: tuple[Literal["vision", "projector", "text", "embeddings"], ...] = ()
    """Parts that stay as they are."""


class Lora(Shape):
    """Low-rank adapters on a frozen base (arXiv 2106.09685)."""

    rank: Whole = 16
    """Inner width of each adapter."""
    alpha: Positive | None = None
    """Scale: the adapter's output is multiplied by alpha / rank; twice the rank if not given."""
    dropout: Share = 0.0
    """Share of the adapter's input that is set to zero."""
    targets: Literal["attention", "mlp", "all-linear"] | str | tuple[str, ...] = "all-linear"
    """Which linear modules of the language model or denoiser get adapters: `attention`, `mlp`,
    `all-linear`, a list of names by suffix, or one regular expression over whole module paths."""
    vision: bool = False
    """Whether `attention`, `mlp` and `all-linear` reach into the vision tower too."""
    also_train: tuple[str, ...] | None = None
    """Modules trained in full beside the adapters (`embed_tokens`, `resampler`); when absent, what
    the model's own trainer trains."""
    rslora: bool = False
    """Scale by alpha / sqrt(rank) instead (arXiv 2312.03732)."""
    dora: bool = False
    """Train magnitude and direction apart (arXiv 2402.09353)."""
    merge: Literal["device", "host"] | None = None
    """Where a script of yours adds the adapters to the base when training is done: `device`, beside
    all that is there for training, or `host`, into a 16-bit base in host RAM; when absent, nowhere.
    Plans count the memory of it."""


class Qlora(Lora):
    """LoRA on a base stored in 4 bits (arXiv 2305.14314)."""

    format: Literal["nf4", "fp4"] = "nf4"
    """The 4-bit format of the base."""
    double: bool = True
    """Whether the block scales are quantised too."""


class Int8Lora(Lora):
    """LoRA on a base stored in 8 bits (LLM.int8(), arXiv 2208.07339)."""


class Method(Shape):
    """What is trained: exactly one of these."""

    model_config = ONE_FIELD

    full: Full | None = None
    lora: Lora | None = None
    qlora: Qlora | None = None
    int8_lora: Int8Lora | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one method, not {' and '.join(given) or 'none'}")
        return self

    @property
    def name(self) -> str:
        """The one that is given, as the spec calls it."""
        return next(name for name in type(self).model_fields if getattr(self, name) is not None)


MethodName = Literal["full", "lora", "qlora", "int8_lora"]


def _method_by_name(value: Any) -> Any:
    if isinstance(value, str):
        return {value: {}}
    if isinstance(value, dict):
        return {name: {} if options is None else options for name, options in value.items()}
    return value


def _short_for(field: str, written: Any) -> BeforeValidator:
    """Take a text for the one field that a mapping needs; `SHORTHANDS` has the same by path."""
    return BeforeValidator(
        lambda value: {field: value} if isinstance(value, str) else value,
        json_schema_input_type=written,
    )


class Memory(Shape):
    """What the run may take; absent: all there is, of which some is left free."""

    gpu_memory: Budget | None = None
    """Of each device: an amount or a share."""
    host_memory: Budget | None = None
    """Of each node: an amount or a share."""


class BatchIntent(Shape):
    """How many samples make one optimizer step."""

    global_: PositiveCount | None = Field(default=None, alias="global")
    """Samples in one optimizer step, over all devices."""


class Optimizer(Shape):
    """What moves the parameters."""

    name: OptimizerName = "adamw"
    """The algorithm."""
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Decay of the first moment."""
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    """Decay of the second moment."""
    epsilon: Positive = 1e-8
    """Added to the denominator."""
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Decoupled weight decay."""
    max_grad_norm: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    """Gradients are clipped to this norm; 0: not clipped."""


class Warmup(Shape):
    """How long the learning rate rises: exactly one of these."""

    model_config = ONE_FIELD

    steps: Count | None = None
    """Optimizer steps."""
    share: Share | None = None
    """Part of all steps."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.steps is None) == (self.share is None):
            raise ValueError("give steps or a share of them, one of the two")
        return self


def _warmup_by_value(value: Any) -> Any:
    if isinstance(value, bool) or value is None or isinstance(value, dict):
        return value
    if isinstance(value, float) or (isinstance(value, str) and "%" in value):
        return {"share": value}
    return {"steps": value}


class Train(Shape):
    """How long, how fast."""

    model_config = ConfigDict(json_schema_extra={"not": {"required": ["epochs", "steps"]}})

    epochs: Annotated[Positive, Field(le=INT64)] | None = None
    """Passes over the data."""
    steps: PositiveCount | None = None
    """Optimizer steps; instead of epochs."""
    learning_rate: Positive | None = None
    """The highest learning rate of the schedule; when absent, the usual one of the method."""
    schedule: ScheduleKind = "cosine"
    """Shape of the learning rate over time."""
    schedule_arguments: dict[str, int | float | str] = {}
    """What this shape is told beside its length and warm-up, in transformers' words:
    `{min_lr_rate: 0.1}` of cosine_with_min_lr, `{num_cycles: 3}` of cosine_with_restarts,
    `{num_decay_steps: 200}` of warmup_stable_decay."""
    warmup: Annotated[
        Warmup, BeforeValidator(_warmup_by_value, json_schema_input_type=Count | Share | Warmup)
    ] = Warmup.model_construct(share=0.03)
    """How long the learning rate rises: steps (`100`) or a share of all steps (`3%`)."""
    optimizer: Annotated[
        Optimizer,
        _short_for("name", OptimizerName | Optimizer),
    ] = Optimizer.model_construct()
    """The optimizer, by name or with its settings."""
    evaluations: Count | None = None
    """How many times to evaluate over the run, where there is data for it; absent: once an epoch,
    but 4 times at least and 10 at most."""
    checkpoints: PositiveCount | None = None
    """How many times to save over the run; absent: about once an hour, and at the end."""
    neftune_alpha: Positive | None = None
    """NEFTune (arXiv 2310.05914): noise on the embeddings in training; 5 to 15 are usual; absent:
    none."""
    keep_checkpoints: PositiveCount | None = 2
    """How many of them to keep; null: all."""
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 42
    """Seed of data order and initialisation; what `numpy.random.seed` takes."""
    output: Annotated[str, Field(min_length=1)] = "output"
    """Directory for checkpoints and logs."""
    report_to: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ()
    """Trackers."""

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if self.epochs is not None and self.steps is not None:
            raise ValueError("give epochs or steps, not both")
        return self


class PrecisionIntent(Shape):
    """Which arithmetic, where the choice should not be tunec's."""

    compute: FloatDtype | None = None
    """dtype of matrix products; when absent, the best that every device used really has."""
    deprecated_fp16: bool = False
    """Allow DeepSpeed's fp16 on compute capability 6.x (DS_ALLOW_DEPRECATED_FP16=1)."""


DeviceUse = Literal["best", "all"]


class DeviceChoice(Shape):
    """Which devices of the cluster to use."""

    use: DeviceUse = "best"
    """`best`: only the devices of the strongest model, where models are mixed. `all`: every one,
    planned for the weakest."""
    count: PositiveCount | None = None
    """At most this many, over all nodes."""


def _whole(value: Any) -> Any:
    """A version is a whole number: in Python, `True == 1` and `1.0 == 1`."""
    if type(value) is not int:
        raise ValueError("the version is the whole number 1")
    return value


class Pinned(Shape):
    """A pinned value with the reason for it."""

    value: Any
    reason: str


class Spec(Shape):
    """One run, as a person means it."""

    tunec: Annotated[Literal[1], BeforeValidator(_whole, json_schema_input_type=Literal[1])]
    """Version of this language."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)] = "run"
    """Name of the run: letters, digits, `.`, `_` and `-`; when absent, the file's name."""
    model: str | InlineModel
    """Catalogue name, path of a config.json or its directory, or inline facts."""
    calibration: str | None = None
    """File that `tunec trace --save` wrote of this model, relative to the spec; when absent,
    `tunec-calibration.json` beside the model's config, if there is one. A plan of the run that was
    traced takes its memory from there."""
    method: Annotated[
        Method, BeforeValidator(_method_by_name, json_schema_input_type=MethodName | Method)
    ]
    """full, lora, qlora or int8_lora, by name or with options."""
    task: Task | None = None
    """What stands on the model's body, such as a classifier; when absent, what its config names."""
    objective: Annotated[
        Objective,
        BeforeValidator(_method_by_name, json_schema_input_type=ObjectiveName | Objective),
    ] = Objective.model_construct(sft=Sft.model_construct())
    """sft, dpo or grpo, by name or with options: given texts, preferred answers, rewarded ones."""
    data: Annotated[Data, _short_for("train", DataPath | Data)]
    """What the model is trained on: the training data alone, or with what is known of it."""
    evaluation: Evaluation = Evaluation.model_construct()
    """What evaluation computes besides the loss."""
    hardware: str | Cluster
    """Catalogue name (`a100-80g-x8`), path of a cluster file, or inline."""
    devices: Annotated[
        DeviceChoice,
        _short_for("use", DeviceUse | DeviceChoice),
    ] = DeviceChoice.model_construct()
    """Which devices of the hardware to use."""
    budget: Memory = Memory.model_construct()
    """What the run may take."""
    batch: BatchIntent = BatchIntent.model_construct()
    """How many samples make one optimizer step."""
    train: Train = Train.model_construct()
    """How long, how fast."""
    run: Script = Script.model_construct()
    """The script of your own that is started, with its arguments; when absent, the trainer's."""
    precision: Annotated[
        PrecisionIntent,
        _short_for("compute", FloatDtype | PrecisionIntent),
    ] = PrecisionIntent.model_construct()
    """Which arithmetic, where the choice should not be tunec's."""
    attention: Attention | None = None
    """Which attention code to run; when absent, the best that model and devices have."""
    engine: Engine | None = None
    """none (one process), ddp, deepspeed or fsdp; when absent, the search chooses among the first
    three."""
    launcher: Launcher | None = None
    """How the processes are started; when absent, what fits the engine."""
    watch: bool = False
    """Whether a bundle records each step for `tunec calibrate`, and stops what cannot go on."""
    job: Job = Job.model_construct()
    """What a cluster is told of the job that runs it: queue, account, time, image, setup."""
    extra: dict[str, dict[str, Any]] = {}
    """Keys of a target, or of a program that reads one of its files, that tunec does not decide:
    `{trl: {dataset_num_proc: 8}, deepspeed: {wall_clock_breakdown: true}}`. Each is checked with
    the reader's own schema and written as it is."""
    targets: tuple[str, ...] = ()
    """What to compile to when the command line names no target: `huggingface@4.40`."""
    software: dict[str, str] = {}
    """Versions that will run: `{transformers: "4.40.2", deepspeed: "0.19"}`."""
    pin: dict[str, Any] = {}
    """Any slot, by path: `{zero.stage: 2}`, or with a reason: `{value: 2, reason: ...}`."""
    allow: dict[str, str] = {}
    """Diagnostics to accept, each with the reason: `{name: reason}`."""


SHORTHANDS: Final[Mapping[tuple[str, ...], str]] = {
    ("data",): "train",
    ("devices",): "use",
    ("precision",): "compute",
    ("train", "optimizer"): "name",
}
"""Where a text stands for a mapping of one field, and for which: a later layer adds to it."""

EXCLUSIVE: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
    ("method",): ("full", "lora", "qlora", "int8_lora"),
    ("objective",): ("sft", "dpo", "grpo"),
    ("task",): ("sequence_classification", "token_classification"),
    ("evaluation",): ("generate", "metrics"),
    ("train",): ("epochs", "steps"),
    ("train", "warmup"): ("steps", "share"),
}
"""Fields that exclude each other, by the path of what holds them."""
