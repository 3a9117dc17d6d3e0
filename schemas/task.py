"""The task section of a spec: heads whose output is not text."""

from typing import Self

from pydantic import model_validator

from tunec.schemas.models.architecture import ClassifierKind
from tunec.schemas.objectives import ONE_FIELD
from tunec.schemas.shape import Shape
from tunec.schemas.units import Whole


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
