"""Options of loader processes where there are none."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run

_WHY: Final = {
    "dataloader_persistent_workers": "persistent_workers option needs num_workers > 0",
    "dataloader_prefetch_factor": "it can only be set when data is loaded in another process",
}
_WHEN: Final[dict[str, Consequence]] = {
    "dataloader_persistent_workers": "init",
    "dataloader_prefetch_factor": "parse",
}


def _check(run: Run) -> Iterator[Finding]:
    workers = run.effective("trainer", "dataloader_num_workers")
    if workers.value != 0 or isinstance(workers.value, bool):
        return
    for key, why in _WHY.items():
        for place in run.each("trainer", key):
            if _asks(key, place.value):
                yield _finding(key, place, workers.place, why)


def _asks(key: str, value: Any) -> bool:
    return value is True if key.endswith("workers") else value is not None


def _finding(key: str, place: Place, workers: Place | None, why: str) -> Finding:
    return Finding(
        f"`{place.path}` is {place.value}, and dataloader_num_workers is 0",
        (
            place.label("refused"),
            *([workers.label("", primary=False)] if workers is not None else []),
        ),
        (why,),
        "write dataloader_num_workers, or remove it",
        Fix((place.removed(),), "safe"),
        consequence=_WHEN[key],
    )


RULE = Rule(
    name="workers-missing",
    severity="error",
    consequence="init",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.40.2 to 5.23.0 training_args.py `__post_init__`, `_validate_args`: "
            "ValueError, --dataloader_prefetch_factor"
        ),
        (
            "torch 2.13.0 utils/data/dataloader.py `DataLoader.__init__`: ValueError, "
            "persistent_workers option needs num_workers > 0"
        ),
    ),
    check=_check,
)
