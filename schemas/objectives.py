"""The objective section of a spec: what a model is trained towards."""

from typing import Annotated, Final, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from tunec.schemas.objective_facts import OBJECTIVES
from tunec.schemas.shape import Shape
from tunec.schemas.terms import GroupLoss, ObjectiveKind, PairLoss
from tunec.schemas.units import Length, Positive

ONE_FIELD: Final = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})
"""Exactly one field of a shape is given."""


class Sft(Shape):
    """Train on given texts."""


class Dpo(Shape):
    """Train towards the better of two answers (arXiv 2305.18290)."""

    beta: Positive = 0.1
    """Weight of the distance from the reference model."""
    loss: PairLoss = "sigmoid"
    """Variant of the loss over a pair."""
    reference: Literal["resident", "precomputed"] | None = None
    """`resident`: a second model on the devices. `precomputed`: its values are computed before
    training. When absent, the base model without its adapters, or a second model if there are no
    adapters."""


class _Answered(Shape):
    """Train on answers that the model generates and a function rewards."""

    rewards: Annotated[tuple[str, ...], Field(min_length=1)]
    """Functions that reward an answer: names that the trainer knows, or dotted import paths."""
    completion: Length = 256
    """Most tokens of an answer; `data.sequence` covers the prompt and the answer."""
    beta: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Weight of the distance from a reference model; 0: no reference model."""
    temperature: Positive = 1.0
    """Sampling temperature."""
    generator: Literal["transformers", "vllm_colocate", "sglang_colocate", "vllm_server"] | None = (
        None
    )
    """What generates the answers: the trained model itself, vLLM or SGLang on the same devices, or
    a server; when absent, the model itself, or vLLM for trainers that need an engine."""
    device_share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Share of each device's memory for vLLM or SGLang on the training devices; 0.3 when absent."""
    engine_sleeps: bool | None = None
    """Whether the engine frees that share during training; when absent, the trainer's default."""
    offload_training: bool = False
    """Whether weights and optimizer states move to the host while answers are generated."""


class Grpo(_Answered):
    """Train on answers that the model generates and a function rewards (arXiv 2402.03300)."""

    samples: Annotated[int, Field(ge=2, le=4096)] = 8
    """Answers per prompt, which are compared with each other."""
    loss: GroupLoss | None = None
    """How the loss of a group is averaged; when absent, the default of the trainer's release."""


class Ppo(_Answered):
    """Train on rewarded answers beside a critic, a second model that gives each token a value.

    PPO with the advantages of arXiv 1506.02438 and the clipped loss of 1707.06347.
    """

    rewards: Annotated[tuple[str, ...], Field(min_length=1)] = ("default_compute_score",)
    """Functions that reward an answer: names that the trainer knows, or dotted import paths; when
    absent, verl's own function, which goes by the column `data_source`."""
    samples: Annotated[int, Field(ge=1, le=4096)] = 1
    """Answers per prompt."""
    kl: Literal["reward", "loss"] = "reward"
    """Where the distance from the reference counts, if `beta` is not 0."""
    critic: str | None = None
    """Weights of the critic: a catalogue name, or the path of a config.json or its directory; when
    absent, those of the trained model. It gets a head of one number for each token."""
    critic_learning_rate: Positive = 1e-5
    """The critic's learning rate."""
    gamma: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Discount of later rewards."""
    lam: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Lambda of the advantages: 1 takes whole returns, 0 the next value alone."""
    epochs: Annotated[int, Field(ge=1, le=100)] = 1
    """Times that both models are trained on the same answers."""
    clip: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """How far the ratio of probabilities may leave 1 before the loss stays flat."""
    value_clip: Positive = 0.5
    """How far a value may leave the one before the update until the critic's loss stays flat."""


class Reward(Shape):
    """Train a reward model: one number for each text, higher for the better of two answers.

    The loss over a pair is that of Bradley and Terry, as in arXiv 2203.02155, equation 1.
    """


class Objective(Shape):
    """The training objective: exactly one of these."""

    model_config = ONE_FIELD

    sft: Sft | None = None
    dpo: Dpo | None = None
    grpo: Grpo | None = None
    ppo: Ppo | None = None
    reward: Reward | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one objective, not {' and '.join(given) or 'none'}")
        return self

    @property
    def answered(self) -> Grpo | Ppo | None:
        """What is given of an objective whose answers the model generates; None for others."""
        return self.grpo or self.ppo

    @property
    def kind(self) -> ObjectiveKind:
        """The objective that is given."""
        return next(kind for kind in OBJECTIVES if getattr(self, kind) is not None)


ObjectiveName = Literal["sft", "dpo", "ppo", "reward"]
"""Objectives that need no options."""
