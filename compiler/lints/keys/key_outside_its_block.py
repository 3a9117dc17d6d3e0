"""A key at the top of GLM-4's file that belongs into its training arguments."""

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from tunec.compiler.consumers.schemas import known_releases
from tunec.compiler.diagnostics.wording import nearest
from tunec.compiler.lints.keys.known import fields_of
from tunec.compiler.lints.kinds import schema
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_COMMITS: Final = ("da2fe37", "f6ee34e", "3f79b54")


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("glm4"):
        if document.is_view or document.get("data_config") is None:
            continue
        for path, place in document.found.items():
            if "." in path or path in _top():
                continue
            near = nearest(path, _top())[:1]
            home = "training_args" if path in _arguments() else None
            yield Finding(
                f"GLM-4's file has no key `{path}` at the top",
                (place.key_label("refused"),),
                ("FinetuningConfig is made of the keys: unexpected keyword argument",),
                f"write it below {home}"
                if home
                else f"did you mean `{near[0]}`?"
                if near
                else "remove it",
            )


@cache
def _top() -> frozenset[str]:
    found: list[dict[str, Any]] = [schema(f"glm4/{each}.json") for each in _COMMITS]
    return frozenset(name for each in found for name in each["properties"]) | {"swanlab"}


@cache
def _arguments() -> frozenset[str]:
    releases = known_releases("training_arguments")
    return frozenset[str]().union(*(fields_of("training_arguments", each) for each in releases))


RULE = Rule(
    name="key-outside-its-block",
    severity="error",
    consequence="parse",
    consumers=("transformers",),
    sources=(
        (
            "zai-org/GLM-4 da2fe37, f6ee34e and 3f79b54 finetune.py, finetune_vision.py "
            "`FinetuningConfig.from_dict`: cls(**kwargs)"
        ),
    ),
    check=_check,
)
