"""The values that tunec says hold, against those that the real programs resolved."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pairs import Pair
from readers import Real

from tunec.compiler.consumers.schemas import ds_config_defaults
from tunec.compiler.lints.effective import Effective
from tunec.compiler.lints.run import Run

Difference = tuple[str, str, Any, Any]
"""Kind of document, key, tunec's value, the real value."""

NOT_COMPARED: Final[Mapping[str, str]] = {
    "steps_per_print": "accelerate writes inf where the file leaves it out; nothing rests on it",
    "zero_allow_untested_optimizer": "accelerate writes true beside a client optimizer",
    "wall_clock_breakdown": "the profiler's switch turns it on",
    "bfloat16.enabled": "the older name of bf16.enabled, which is compared",
}
"""Keys by the reason why their values are not."""
_DTYPES: Final = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}


def differing(pair: Pair, run: Run, real: Real) -> Iterator[Difference]:
    """Every key for which tunec knows a value, and the real program has another."""
    for key in sorted(_keys(run) - NOT_COMPARED.keys()):
        ours = run.effective("deepspeed", key)
        if _is_told(ours) and key in real.config and not _same(ours.value, real.config[key]):
            yield "deepspeed", key, ours.value, real.config[key]
    for key in pair.arguments or ():
        ours = run.effective("hf", key)
        if _is_told(ours) and key in real.arguments and not _same(ours.value, real.arguments[key]):
            yield "hf", key, ours.value, real.arguments[key]


def _keys(run: Run) -> set[str]:
    """What the file says, and what it leaves out."""
    release = str(run.release("deepspeed").version)
    written = {path for each in run.of("deepspeed") for path in each.found}
    return written | set(ds_config_defaults(release))


def _is_told(ours: Effective) -> bool:
    """A default of None is left to its reader (`ds_config_defaults`)."""
    return ours.known and ours.value is not None and not isinstance(ours.value, dict)


def _same(ours: Any, theirs: Any) -> bool:
    if ours == "none" and theirs == []:
        return True  # report_to
    if isinstance(ours, str) and isinstance(theirs, str):
        return _DTYPES.get(ours, ours).lower() == _DTYPES.get(theirs, theirs).lower()
    return bool(ours == theirs)
