"""The JSON Schema of the flags: of the script, its model class, and SwissArmyTransformer."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.consumers.environments import prepare
from tunec.compiler.consumers.queries import ask
from tunec.targets.scripts.sources import Source, obtain
from tunec.targets.visualglm.target import VERSION

CONSUMER: Final = "tunec.targets.visualglm.consumer"
REQUIREMENTS: Final = (f"SwissArmyTransformer=={VERSION}",)
_COMMIT: Final = "e314fb9c4e778851414f39784317c72765acec47"
_REPOSITORY: Final = "THUDM/VisualGLM-6B"
SOURCES: Final = (
    Source(
        _REPOSITORY, _COMMIT, "finetune_visualglm.py", "0eb2d103d808fd148dc4a70483cd9de489b1303e"
    ),
    Source(_REPOSITORY, _COMMIT, "model/visualglm.py", "1b469efcad27dfd843423982ae7cc4ead5801d4d"),
)
"""The script and the model class whose flags precede those of SwissArmyTransformer."""


def documents() -> Iterator[tuple[str, Any]]:
    """The schema by its path below `schemas/json/`. Raises EnvironmentUnavailable."""
    scripts = [str(obtain(each)) for each in SOURCES]
    question = {"verb": "schema", "scripts": scripts}
    (found,) = ask(prepare(REQUIREMENTS), CONSUMER, [question])
    yield f"visualglm/{VERSION}.json", found
