"""The values that tunec says hold, against those that the real programs resolved."""

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any, Final

from pairs import Pair
from readers import Real

from tunec.compiler.consumers.schemas import ds_config_defaults
from tunec.compiler.lints.checks.keys.texts import number_of
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.effective import Effective

Difference = tuple[str, str, Any, Any]
"""Kind of document, key, tunec's value, the real value."""

_TRUTH: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}

NOT_COMPARED: Final[Mapping[str, str]] = {
    "steps_per_print": "accelerate writes inf where the file leaves it out; nothing rests on it",
    "zero_allow_untested_optimizer": "accelerate writes true beside a client optimizer",
    "wall_clock_breakdown": "the profiler's switch turns it on",
    "bfloat16.enabled": "the older name of bf16.enabled, which is compared",
    "zero_optimization.cpu_offload": "empty once it has become offload_optimizer",
    "zero_optimization.cpu_offload_param": "empty once it has become offload_param",
    "zero_optimization.stage3_gather_fp16_weights_on_model_save": "empty once it is the newer name",
    "checkpoint.use_node_local_storage": "the trainer fills it in from save_on_each_node",
    "do_eval": "a strategy of evaluation turns it on",
    "include_num_input_tokens_seen": "from 4.57 on true and false become words",
}
"""Keys by the reason why their values are not."""
_TAKEN_APART: Final = ("elasticity.", "curriculum_learning.", "data_efficiency.", "autotuning.")
"""Blocks that classes of their own take apart: DeepSpeedConfig keeps none of their values."""
_BATCH: Final = (
    *("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"),
)
"""What elastic training chooses anew."""
_DTYPES: Final = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}


def differing(pair: Pair, run: LintContext, real: Real) -> Iterator[Difference]:
    """Every key for which tunec knows a value, and the real program has another."""
    is_half = run.effective("deepspeed", "fp16.enabled").value is True
    scaling = {each for each in _keys(run) if each.startswith("fp16.")} - {"fp16.enabled"}
    batch = _BATCH if _is_elastic(run) else ()
    for key in sorted(_keys(run) - NOT_COMPARED.keys() - {*batch}):
        if key.startswith(_TAKEN_APART) or (key in scaling and not is_half):
            continue
        ours = run.effective("deepspeed", key)
        theirs = real.config.get(key, "auto")  # what nobody fills in has no value
        if _is_told(ours) and theirs != "auto" and not _same(ours.value, theirs):
            yield "deepspeed", key, ours.value, theirs
    for key in (pair.arguments or {}).keys() - NOT_COMPARED.keys():
        ours = run.effective("hf", key)
        if _is_told(ours) and key in real.arguments and not _same(ours.value, real.arguments[key]):
            yield "hf", key, ours.value, real.arguments[key]


def _keys(run: LintContext) -> set[str]:
    """What the file says, and what it leaves out."""
    release = str(run.release("deepspeed").version)
    written = {path for each in run.of("deepspeed") for path in each.found}
    return written | set(ds_config_defaults(release))


def _is_elastic(run: LintContext) -> bool:
    return run.effective("deepspeed", "elasticity.enabled").value is True


def _read(text: str) -> Any:
    """A text as pydantic reads it: tunec keeps what is written, and tells that it is in quotes."""
    number = number_of(text.strip())
    return _TRUTH.get(text.lower()) if number is None else number


def _is_told(ours: Effective) -> bool:
    """A default of None is left to its reader (`ds_config_defaults`)."""
    return ours.known and ours.value is not None and not isinstance(ours.value, dict)


def _same(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, list) and isinstance(ours, str):
        return bool(theirs == ([] if ours in ("", "none") else [ours]))  # report_to and debug
    if isinstance(ours, str) and isinstance(theirs, bool | int | float):
        return bool(_read(ours) == theirs)
    if isinstance(ours, str) and isinstance(theirs, str):
        return _DTYPES.get(ours, ours).lower() == _DTYPES.get(theirs, theirs).lower()
    if isinstance(ours, float) and isinstance(theirs, int) and isfinite(ours):
        return int(ours) == theirs  # value-of-another-type tells what is cut off
    return bool(ours == theirs)
