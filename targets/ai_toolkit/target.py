"""ostris/ai-toolkit: the config of `run.py CONFIG`; it is read, and never written.

The rows' keys are those of its first process, which trains; `name` is the surrounding
`config.name`.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.target import Cannot, File, Json, Target, in_no_plan
from tunec.targets.ai_toolkit.migration import LEAVES
from tunec.targets.ai_toolkit.packages import PACKAGE, RELEASES, SUPPORTED
from tunec.targets.ai_toolkit.rows import ROWS, is_flux
from tunec.targets.read_only import schema_of
from tunec.targets.scripts.file import own_script
from tunec.targets.trainers import training_denoisers

_JOBS: Final = ("extension", "train")
_TYPES: Final = ("sd_trainer", "diffusion_trainer", "ui_trainer")
_AROUND: Final = frozenset({"job", "config", "meta"})
"""The only keys around a process."""


def _is_config(document: Json) -> bool:
    """Whether a document is a job with a training process, or the rest of such a job."""
    if not isinstance(document, Mapping):
        return False
    held, job = document.get("config"), document.get("job")
    processes = held.get("process") if isinstance(held, Mapping) else None
    first = processes[0] if isinstance(processes, list) and processes else None
    if isinstance(first, Mapping) and "train" in first:
        return job in _JOBS or (job is None and first.get("type") in _TYPES)
    return job == "extension" and not processes and not document.keys() - _AROUND


def _foreign(found: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    if "network.type" in found and not is_flux(found):
        yield (
            "network.type",
            "every linear layer of the blocks is adapted, and in the new run those that it names",
        )


_CONFIG: Final = File(
    "ai-toolkit.yaml",
    "yaml",
    ROWS,
    _is_config,
    schema_of(PACKAGE, RELEASES, PACKAGE),
    when=in_no_plan,
    leaves=LEAVES,
    foreign=_foreign,
)
TARGET: Final = Target(
    name=PACKAGE,
    package=PACKAGE,
    supported=SUPPORTED,
    latest=RELEASES[-1],
    releases=RELEASES,
    files=(_CONFIG,),
    cannot={
        **training_denoisers("ai-toolkit"),
        "launch.script": own_script("ai-toolkit"),
        "launch.launcher": Cannot("run.py is one process", True, ("accelerate",)),
    },
    run_by="simpletuner",
)
"""The files that `run.py` of ai-toolkit reads."""
