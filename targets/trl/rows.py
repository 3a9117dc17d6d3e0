"""Rows of the files for `trl sft`, `trl dpo` and `trl grpo`.

Those for SFT are written; a plan says nothing of preference data or of rewards, so the other two
are read. They share everything but the samples.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import ALWAYS, Entry, same
from tunec.targets.huggingface.packages import TRL
from tunec.targets.huggingface.sft import DATA, SAMPLES, SFT
from tunec.targets.huggingface.training import TRL_LEARNING_RATE

_DPO: Final = "trl 0.9.6 to 1.16.0 trainer/dpo_config.py `DPOConfig`, before it DpoScriptArguments"
_GRPO: Final = "trl 0.14.0 to 1.16.0 trainer/grpo_config.py `GRPOConfig`"
_RATE: Final = "optimizer.learning_rate"
_SEQUENCE: Final = "data.sequence"


def never(_: Plan) -> bool:
    """False: a file that is read and not written."""
    return False


def of_transformers(entry: Entry) -> Entry:
    """A row that counts releases of transformers, in a target whose own package is trl."""
    return entry if entry.package else replace(entry, package="transformers")


_SFT: Final = tuple(map(of_transformers, SFT.entries))
_OWN: Final = frozenset({*map(id, SAMPLES), id(TRL_LEARNING_RATE)})
_SHARED: Final = tuple(of_transformers(each) for each in SFT.entries if id(each) not in _OWN)
"""Data set, model, adapter and the arguments of the Trainer."""


def _rate(source: str, absent: tuple[tuple[str, float], ...]) -> Entry:
    return same("learning_rate", _RATE, source, absent=absent, package=TRL)


def _nothing_packed(source: str) -> Entry:
    """Neither script packs samples."""
    absent = ((ALWAYS, {"data.packing": False}),)
    return Entry(
        (), ("data.packing",), lambda _: {}, lambda _: {}, source, absent=absent, package=TRL
    )


_DPO_LENGTH: Final = replace(
    same("max_length", _SEQUENCE, f"{_DPO}: prompt and completion together", package=TRL),
    absent=(("0.8", {_SEQUENCE: 512}), ("0.9", {}), ("0.14", {_SEQUENCE: 1024})),
)


def _read_generated(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Known where both parts are: without a bound on the prompt, the data has the only one."""
    prompt, completion = (found.get(f"max_{part}_length") for part in ("prompt", "completion"))
    if not isinstance(prompt, int) or not isinstance(completion, int):
        return {}
    return {_SEQUENCE: prompt + completion}


_GRPO_LENGTH: Final = Entry(
    ("max_prompt_length", "max_completion_length"),
    (_SEQUENCE,),
    lambda _: {},
    _read_generated,
    f"{_GRPO}: the prompt is bounded until 0.27 only",
    until="0.28",
    package=TRL,
)

SFT_ENTRIES: Final = _SFT
DPO_ENTRIES: Final = (
    *_SHARED,
    _rate(_DPO, ((ALWAYS, 5e-5), ("0.12", 1e-6))),
    _DPO_LENGTH,
    _nothing_packed(_DPO),
)
GRPO_ENTRIES: Final = (
    *(each for each in _SHARED if each not in DATA or "data.train" in each.slots),
    _rate(_GRPO, ((ALWAYS, 1e-6),)),
    _GRPO_LENGTH,
    _nothing_packed(_GRPO),
)
