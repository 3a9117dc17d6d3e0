"""The base of every typed shape: frozen, closed, with no coercion of strings into other types."""

from pydantic import BaseModel, ConfigDict


class Shape(BaseModel):
    """An immutable record; an unknown field is an error, never dropped."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=False,
        protected_namespaces=(),
        defer_build=True,  # most shapes are only parts of others, which build them in
    )
