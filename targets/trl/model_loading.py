"""How `trl grpo` and `trl reward` load the model: by `model_init_kwargs`, then by ModelConfig.

In 0.20 and 0.21 scripts/grpo.py calls `from_pretrained` with a name and `trust_remote_code` only.
From 0.22 to 0.25 it passes the trainer a name, which loads it with `model_init_kwargs`, as
scripts/reward.py does from 0.24 to 1.4.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Entry, derived, fixed, in_every_plan, same
from tunec.schemas.frozen import replace
from tunec.targets.huggingface.model import DTYPES, dtype_of
from tunec.targets.huggingface.packages import TRL
from tunec.targets.rows import in_four_bits, is_quantised, without_deepspeed

_BY_KEYS: Final = "0.26"
_BY_TRAINER: Final = "0.22"
_SCRIPT: Final = "trl 0.20.0 and 0.21.0 scripts/grpo.py: `from_pretrained` without dtype loads fp32"
_KWARGS: Final = "model_init_kwargs"
_TRAINER: Final = (
    f"trl 0.22.2 to 0.25.1 trainer/grpo_trainer.py `__init__`: `from_pretrained(**{_KWARGS})`; "
    "scripts/grpo.py reads no key of ModelConfig but the name and those of the adapter"
)
_BITS: Final = f"{_KWARGS}.quantization_config"


def by_keys(entries: Iterable[Entry], first: str = _BY_KEYS) -> Iterator[Entry]:
    """Rows of ModelConfig from the first release whose script reads them."""
    for each in entries:
        if each.until is None or Version(each.until) > Version(first):
            yield replace(each, since=max(each.since or "0", first, key=Version))


def _fixed(slot: str, value: Any, when: Callable[[Plan], bool] = in_every_plan) -> Entry:
    return fixed(slot, value, _SCRIPT, until=_BY_TRAINER, when=when, package=TRL)


_BY_SCRIPT: Final = (
    # DeepSpeed casts the module, whatever its dtype was
    _fixed("states.weights", "fp32", without_deepspeed),
    _fixed("attention.implementation", "sdpa"),
    _fixed("quantization.format", "none"),
    same("trust_remote_code", "model.trust_remote_code", _SCRIPT, until=_BY_TRAINER, package=TRL),
)


def _write_format(plan: Plan) -> Mapping[str, Any]:
    if not is_quantised(plan):
        return {}
    if not in_four_bits(plan):
        return {f"{_BITS}.load_in_8bit": True}
    return {f"{_BITS}.load_in_4bit": True, f"{_BITS}.bnb_4bit_quant_type": plan.quantization.format}


def _read_format(found: Mapping[str, Any]) -> Mapping[str, Any]:
    if found.get(f"{_BITS}.load_in_4bit") is True:
        return {"quantization.format": found.get(f"{_BITS}.bnb_4bit_quant_type", "fp4")}
    eight = found.get(f"{_BITS}.load_in_8bit") is True
    return {"quantization.format": "int8" if eight else "none"}


def _loaded(key: str, slot: str, source: str, when: Callable[[Plan], bool]) -> Entry:
    """A row for a dtype argument of `from_pretrained`."""

    def write(plan: Plan) -> Mapping[str, Any]:
        return {key: DTYPES[plan[slot]]} if plan[slot] in DTYPES else {}

    def read(found: Mapping[str, Any]) -> Mapping[str, Any]:
        dtype = dtype_of(found[key])
        return {} if dtype is None else {slot: dtype}

    return Entry((key,), (slot,), write, read, source, when=when, package=TRL)


def _is_whole(plan: Plan) -> bool:
    return not is_quantised(plan)


def _weights(name: str, source: str) -> tuple[Entry, Entry]:
    """Rows for the dtype of the weights; TRL makes those fp32 that are not quantized."""
    key = f"{_KWARGS}.{name}"

    def write(plan: Plan) -> str:
        return DTYPES[plan.quantization.compute]

    return (
        _loaded(key, "states.weights", source, _is_whole),
        derived(key, write, source, when=is_quantised, package=TRL),
    )


def by_arguments(source: str, first: str, end: str) -> Iterator[Entry]:
    """Rows of `model_init_kwargs` in the releases whose script reads no key of ModelConfig.

    `source` names them; `end` is the first release whose script does.
    """
    attention = f"{_KWARGS}.attn_implementation"
    storage = _loaded(
        f"{_BITS}.bnb_4bit_quant_storage", "quantization.storage", source, in_four_bits
    )
    rows = (
        *(replace(each, until="0.23") for each in _weights("torch_dtype", source)),
        *(replace(each, since="0.23") for each in _weights("dtype", source)),
        same(attention, "attention.implementation", source, package=TRL),
        Entry(
            tuple(
                f"{_BITS}.{key}" for key in ("load_in_4bit", "load_in_8bit", "bnb_4bit_quant_type")
            ),
            ("quantization.format",),
            _write_format,
            _read_format,
            source,
            absent=(("0", {"quantization.format": "none"}),),
            package=TRL,
        ),
        same(
            f"{_BITS}.bnb_4bit_use_double_quant",
            "quantization.double",
            source,
            absent=(("0", False),),
            when=in_four_bits,
            package=TRL,
        ),
        _loaded(f"{_BITS}.bnb_4bit_compute_dtype", "quantization.compute", source, in_four_bits),
        replace(storage, absent=(("0", {"quantization.storage": None}),)),
        fixed("model.trust_remote_code", False, source, package=TRL),
    )
    for each in rows:
        since = max(each.since or "0", first, key=Version)
        until = min(each.until or end, end, key=Version)
        if Version(since) < Version(until):
            yield replace(each, since=since, until=until)


LOADING: Final = (*_BY_SCRIPT, *by_arguments(_TRAINER, _BY_TRAINER, _BY_KEYS))
