"""Traces that tests take in their own process, answered from what is recorded.

A trace is a function of what is traced, of the tracer and of the releases of its packages: by those
it is found again. `run` stands for the tracer's; a test that builds a model of its own marks the
function that traces it with `recorded`. Cards are derived in another module (`derived_cards`), so
that a change of how they are derived leaves the traces of models as they are.
"""

import hashlib
import inspect
from collections.abc import Callable
from functools import cache, wraps
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, ParamSpec, TypeVar, get_type_hints

from msgspec import json

from tunec.compiler.tracing.recording import Trace
from tunec.compiler.tracing.subject import Subject
from tunec.schemas.frozen import replace

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

_PACKAGES: Final = ("torch", "transformers", "diffusers", "peft", "deepspeed", "accelerate", "trl")
_LONG: Final = 400
"""Letters of a question; what is longer is told by its digest."""


class Teller:
    """Who tells a trace: the function itself, unless the plugin stands in its place."""

    def tell(self, script: str, file: Path, question: str, trace: Callable[[], str]) -> str:
        """What a trace comes to, as JSON."""
        del script, file, question
        return trace()


teller = Teller()


def recorded(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """A function that traces, told from what is recorded.

    Its result rests on its arguments and on its module, and is of a type that msgspec reads back.
    """
    file = Path(inspect.getfile(function))
    script = f"{file.stem}.{function.__name__}"

    @wraps(function)
    def told(*args: _Given.args, **named: _Given.kwargs) -> _Result:
        asked = repr((args, sorted(named.items())))
        digest = hashlib.sha256(asked.encode()).hexdigest()
        question = asked if len(asked) <= _LONG else f"{asked[:_LONG]}… {digest}"
        text = teller.tell(
            script, file, question, lambda: json.encode(function(*args, **named)).decode()
        )
        found: _Result = json.decode(text, type=get_type_hints(function)["return"])
        return found

    return told


@cache
def pins() -> tuple[str, ...]:
    """The releases here of what is traced."""
    return tuple(f"{name}=={found}" for name in _PACKAGES if (found := _release(name)))


def _release(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@recorded
def run(subject: Subject) -> Trace:
    """A subject's trace, without the time that it took."""
    from tunec.compiler.tracing.live import single_process

    return replace(single_process.run(subject), seconds=0.0)
