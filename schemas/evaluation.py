"""The evaluation section of a spec: the loss alone, a metric of logits, or a metric of answers."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from tunec.schemas.shape import Shape
from tunec.schemas.units import Length


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
