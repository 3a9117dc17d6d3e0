"""The spec: what a person wants to train, on which hardware, and in how much memory.

Every field is an intent, never a consumer's key. Descriptions are the fields' docstrings; they go
into the generated JSON Schema, which editors show. Defaults are constructed, not validated, which
saves building a validator for each of their shapes; tests check that the defaults are valid.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from tunec.schemas.hardware.profile import Cluster
from tunec.schemas.objective_facts import OBJECTIVES
from tunec.schemas.objectives import ONE_FIELD, Objective, ObjectiveName, Sft
from tunec.schemas.shape import Shape
from tunec.schemas.spec_sections import ONE_NUMBER, Evaluation, Job, Script, Task
from tunec.schemas.terms import (
    Attention,
    Engine,
    FloatDtype,
    FreezablePart,
    Launcher,
    OptimizerName,
    ScheduleKind,
)
from tunec.schemas.training_data import Data, DataPath
from tunec.schemas.units import INT64, Budget, Count, Positive, PositiveCount, Share, Whole


class InlineModel(Shape):
    """A model that the catalogue does not have, by the facts of its own config."""

    path: str
    """The argument of `from_pretrained`: a repository name or a directory."""
    config: dict[str, Any] | str
    """The model's config.json: its contents, or the path of the file relative to the spec."""
    stored_dtype: FloatDtype = "bf16"
    """The dtype of the published weights."""


class Full(Shape):
    """Train the model's own weights."""

    freeze: tuple[FreezablePart, ...] = ()
    """Parts that are not trained."""


class Lora(Shape):
    """Low-rank adapters on a frozen base (arXiv 2106.09685)."""

    rank: Whole = 16
    """Inner width of each adapter."""
    alpha: Positive | None = None
    """Scale: the adapter's output is multiplied by alpha / rank; when absent, twice the rank."""
    dropout: Share = 0.0
    """Share of the adapter's input that is set to zero."""
    targets: Literal["attention", "mlp", "all-linear"] | str | tuple[str, ...] = "all-linear"
    """Which linear modules of the language model or denoiser get adapters: `attention`, `mlp`,
    `all-linear`, a list of names by suffix, or one regular expression over whole module paths."""
    experts: bool = False
    """Whether the routed experts get adapters too, which transformers 5 holds in tensors."""
    vision: bool = False
    """Whether `attention`, `mlp` and `all-linear` include the vision tower."""
    also_train: tuple[str, ...] | None = None
    """Modules that are trained in full beside the adapters (`embed_tokens`, `resampler`); when
    absent, those that the model's own trainer trains."""
    rslora: bool = False
    """Scale by alpha / sqrt(rank) instead of alpha / rank (arXiv 2312.03732)."""
    dora: bool = False
    """Train magnitude and direction separately (arXiv 2402.09353)."""
    merge: Literal["device", "host"] | None = None
    """Where your script merges the adapters into the base after training: `device`, beside
    everything that training holds, or `host`, into a 16-bit base in host RAM; when absent, they are
    not merged. Plans count the memory that a merge needs."""


class Qlora(Lora):
    """LoRA on a base stored in 4 bits (arXiv 2305.14314)."""

    format: Literal["nf4", "fp4"] = "nf4"
    """The 4-bit format of the base."""
    double: bool = True
    """Whether the block scales are quantised too."""


class Int8Lora(Lora):
    """LoRA on a base stored in 8 bits (LLM.int8(), arXiv 2208.07339)."""


class Method(Shape):
    """The training method: exactly one of these."""

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
        """The name of the method that is given."""
        return next(name for name in type(self).model_fields if getattr(self, name) is not None)


MethodName = Literal["full", "lora", "qlora", "int8_lora"]


def _method_by_name(value: Any) -> Any:
    if isinstance(value, str):
        return {value: {}}
    if isinstance(value, dict):
        return {name: {} if options is None else options for name, options in value.items()}
    return value


def _short_for(field: str, written: Any) -> BeforeValidator:
    """Accept a text for the one field that a mapping needs; `SHORTHANDS` lists the same by path."""
    return BeforeValidator(
        lambda value: {field: value} if isinstance(value, str) else value,
        json_schema_input_type=written,
    )


class Memory(Shape):
    """The memory that the run may use; when absent, all of it, except for a reserve."""

    gpu_memory: Budget | None = None
    """Memory of each device: an amount or a share."""
    host_memory: Budget | None = None
    """Memory of each node's host: an amount or a share."""


class BatchIntent(Shape):
    """The batch of one optimizer step."""

    global_: PositiveCount | None = Field(default=None, alias="global")
    """Samples in one optimizer step, over all devices."""


class Optimizer(Shape):
    """The optimizer and its settings."""

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
    """Gradients are clipped to this norm; 0: no clipping."""


class Warmup(Shape):
    """The length of the warm-up: exactly one of these."""

    model_config = ONE_FIELD

    steps: Count | None = None
    """Optimizer steps."""
    share: Share | None = None
    """Share of all steps."""

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
    """Length, learning rate and other settings of the training loop."""

    model_config = ConfigDict(json_schema_extra={"not": {"required": ["epochs", "steps"]}})

    epochs: Annotated[Positive, Field(le=INT64)] | None = None
    """Passes over the data; when neither epochs nor steps are given, one."""
    steps: PositiveCount | None = None
    """Optimizer steps; instead of epochs."""
    learning_rate: Positive | None = None
    """The highest learning rate of the schedule; when absent, the usual one for the method."""
    schedule: ScheduleKind = "cosine"
    """Shape of the learning rate over time."""
    schedule_arguments: dict[str, int | float | str] = {}
    """Further arguments of the schedule, besides its length and warm-up, under transformers' names:
    `{min_lr_rate: 0.1}` for cosine_with_min_lr, `{num_cycles: 3}` for cosine_with_restarts,
    `{num_decay_steps: 200}` for warmup_stable_decay."""
    warmup: Annotated[
        Warmup, BeforeValidator(_warmup_by_value, json_schema_input_type=Count | Share | Warmup)
    ] = Warmup.model_construct(share=0.03)
    """Length of the warm-up: steps (`100`) or a share of all steps (`3%`)."""
    optimizer: Annotated[Optimizer, _short_for("name", OptimizerName | Optimizer)] = (
        Optimizer.model_construct()
    )
    """The optimizer, by name or with its settings."""
    evaluations: Count | None = None
    """How many times to evaluate during the run, if there is evaluation data; when absent, once an
    epoch, but at least 4 and at most 10 times."""
    checkpoints: PositiveCount | None = None
    """How many times to save during the run; when absent, about once an hour, and at the end."""
    neftune_alpha: Positive | None = None
    """NEFTune (arXiv 2310.05914): noise on the embeddings during training; 5 to 15 are usual; when
    absent, no noise."""
    keep_checkpoints: PositiveCount | None = 2
    """How many checkpoints to keep; null: all."""
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = 42
    """Seed of data order and initialisation, in the range of `numpy.random.seed`."""
    output: Annotated[str, Field(min_length=1)] = "output"
    """Directory for checkpoints and logs."""
    report_to: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ()
    """Experiment trackers."""

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if self.epochs is not None and self.steps is not None:
            raise ValueError("give epochs or steps, not both")
        return self


class PrecisionIntent(Shape):
    """The arithmetic, if tunec should not choose it."""

    compute: FloatDtype | None = None
    """dtype of matrix products; when absent, the best that every device supports natively."""
    deprecated_fp16: bool = False
    """Allow DeepSpeed's fp16 on compute capability 6.x (DS_ALLOW_DEPRECATED_FP16=1)."""


DeviceUse = Literal["best", "all"]


class DeviceChoice(Shape):
    """Which devices of the cluster to use."""

    use: DeviceUse = "best"
    """`best`: only the devices of the strongest model, if models are mixed. `all`: every device,
    planned for the weakest."""
    count: PositiveCount | None = None
    """At most this many, over all nodes."""


def _whole(value: Any) -> Any:
    """A version is a whole number; in Python, `True == 1` and `1.0 == 1`."""
    if type(value) is not int:
        raise ValueError("the version is the whole number 1")
    return value


class Pinned(Shape):
    """A pinned value with the reason for it."""

    value: Any
    reason: str


class Spec(Shape):
    """One training run, as a person means it."""

    tunec: Annotated[Literal[1], BeforeValidator(_whole, json_schema_input_type=Literal[1])]
    """Version of this language."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)] = "run"
    """Name of the run: letters, digits, `.`, `_` and `-`; when absent, the file's name."""
    model: str | InlineModel
    """Catalogue name, path of a config.json or its directory, or inline facts."""
    calibration: str | None = None
    """A file that `tunec trace --save` wrote for this model, relative to the spec; when absent,
    `tunec-calibration.json` beside the model's config, if there is one. A plan of the traced run
    takes its memory from this file."""
    method: Annotated[
        Method, BeforeValidator(_method_by_name, json_schema_input_type=MethodName | Method)
    ]
    """full, lora, qlora or int8_lora, by name or with options."""
    task: Task | None = None
    """A head on the model's body, such as a classifier; when absent, the head that its config
    names, or that the objective needs."""
    objective: Annotated[
        Objective,
        BeforeValidator(_method_by_name, json_schema_input_type=ObjectiveName | Objective),
    ] = Objective.model_construct(sft=Sft.model_construct())
    """sft, dpo, grpo, ppo or reward, by name or with options: given texts, preferred answers,
    rewarded answers, or a model that rewards answers."""
    data: Annotated[Data, _short_for("train", DataPath | Data)]
    """The training data: its path alone, or with further facts."""
    evaluation: Evaluation = Evaluation.model_construct()
    """What evaluation computes besides the loss."""
    hardware: str | Cluster
    """Catalogue name (`a100-80g-x8`), path of a cluster file, or inline."""
    devices: Annotated[DeviceChoice, _short_for("use", DeviceUse | DeviceChoice)] = (
        DeviceChoice.model_construct()
    )
    """Which devices of the hardware to use."""
    budget: Memory = Memory.model_construct()
    """The memory that the run may use."""
    batch: BatchIntent = BatchIntent.model_construct()
    """The batch of one optimizer step."""
    train: Train = Train.model_construct()
    """Length, learning rate and other settings of the training loop."""
    run: Script = Script.model_construct()
    """Your own script and its arguments; when absent, the trainer's program is started."""
    precision: Annotated[PrecisionIntent, _short_for("compute", FloatDtype | PrecisionIntent)] = (
        PrecisionIntent.model_construct()
    )
    """The arithmetic, if tunec should not choose it."""
    attention: Attention | None = None
    """The attention implementation; when absent, the best one for the model and the devices."""
    engine: Engine | None = None
    """none (one process), ddp, deepspeed or fsdp; when absent, the search chooses among the first
    three."""
    launcher: Launcher | None = None
    """How the processes are started; when absent, the launcher that suits the engine."""
    watch: bool = False
    """Whether a bundle records each step for `tunec calibrate`, and stops a run that cannot
    succeed."""
    job: Job = Job.model_construct()
    """Settings for the cluster's job: queue, account, time, image, setup."""
    extra: dict[str, dict[str, Any]] = {}
    """Keys that tunec does not decide, by target or by the program that reads the file: `{trl:
    {dataset_num_proc: 8}, deepspeed: {wall_clock_breakdown: true}}`. Each is checked against the
    reader's own schema and written unchanged."""
    targets: tuple[str, ...] = ()
    """The targets to compile for if the command line names none: `huggingface@4.40`."""
    software: dict[str, str] = {}
    """The installed versions: `{transformers: "4.40.2", deepspeed: "0.19"}`."""
    pin: dict[str, Any] = {}
    """Fixed values for any slots, by path: `{zero.stage: 2}`, or with a reason: `{value: 2, reason:
    ...}`."""
    allow: dict[str, str] = {}
    """Diagnostics to accept, each with the reason: `{name: reason}`."""

    @property
    def head(self) -> Task | None:
        """The head that the task asks for, or else the objective; None: the one of the config."""
        scores = OBJECTIVES[self.objective.kind].scores
        return ONE_NUMBER if self.task is None and scores else self.task

    @property
    def critic(self) -> str | InlineModel | None:
        """The weights that PPO's critic starts from; None: no critic is trained."""
        asked = self.objective.ppo
        return None if asked is None else asked.critic or self.model


SHORTHANDS: Final[Mapping[tuple[str, ...], str]] = {
    ("data",): "train",
    ("devices",): "use",
    ("precision",): "compute",
    ("train", "optimizer"): "name",
}
"""Mappings for which a text may stand, and the field that it then sets."""

EXCLUSIVE: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
    ("method",): ("full", "lora", "qlora", "int8_lora"),
    ("objective",): tuple(OBJECTIVES),
    ("task",): ("sequence_classification", "token_classification"),
    ("evaluation",): ("generate", "metrics"),
    ("train",): ("epochs", "steps"),
    ("train", "warmup"): ("steps", "share"),
}
"""Fields that exclude each other, by the path of the mapping that holds them."""
