"""The section of a spec about the user's own script."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from tunec.schemas.shape import Shape


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
