"""How llama-cookbook is run on its flags, and how its answers are read."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Json
from tunec.compiler.verify.contract import (
    Answers,
    Case,
    Fact,
    Program,
    Question,
    TranslatedAnswer,
    Where,
    taken,
)
from tunec.compiler.verify.delivery import values_of
from tunec.schemas.dotted_paths import flat
from tunec.targets.deepspeed.verify import WORDS
from tunec.targets.huggingface.verify import SECONDS, adapter_program, in_order
from tunec.targets.llama_cookbook.schema import CONSUMER, REQUIREMENTS
from tunec.targets.llama_cookbook.target import NAME, STYLE, VERSION
from tunec.targets.scripts.command import FLAGS
from tunec.targets.scripts.verify import flag_words, shell_programs

_FLAGS: Final = "llama_cookbook update_config"
_UNKNOWN: Final = re.compile(r"unknown parameter (\S+)")
"""utils/config_utils.py `update_config` prints it, and continues."""
_BLOCKS: Final[Mapping[str, str]] = {
    "fsdp": "fsdp_config",
    "peft": "lora_config",
    "storage": "quantization_config",
    "data": "custom_dataset",
}
"""The answer's parts, and the classes whose names prefix their flags."""
_MODULES: Final = "target_modules"


def _where(case: Case) -> Where:
    return Where(case.target.package, VERSION, REQUIREMENTS)


def _ask(case: Case, _: Answers) -> Question:
    return {"verb": "resolve", "argv": flag_words(case, NAME)}


def _hear(case: Case, answer: Any) -> TranslatedAnswer:
    return TranslatedAnswer(
        values=_values(case, answer),
        facts=tuple(_facts(case.plan, answer)),
        ignored=tuple(_ignored(case, answer["said"])),
    )


def _values(case: Case, answer: Mapping[str, Any]) -> dict[str, Json]:
    """The resolved value of every flag; data sets of other scripts have no file."""
    found = {**answer["train"], "enable_fsdp": answer["train"]["enable_fsdp"]}
    for part, name in _BLOCKS.items():
        held = answer[part] if isinstance(answer[part], Mapping) else {}
        found |= {f"{name}.{key}": value for key, value in held.items()}
    targets = in_order(case.plan, answer["peft"]).get(_MODULES)
    found |= {} if targets is None else {f"lora_config.{_MODULES}": targets}
    return {f"{FLAGS}.{key}": value for key, value in found.items()}


def _facts(plan: Plan, answer: Mapping[str, Any]) -> Iterator[Fact]:
    """The adapter and quantization that `main` passes to the model."""
    bits, form = answer["quantization"], plan.quantization.format
    yield Fact(
        "adapter.kind", f"{FLAGS}.use_peft", plan.adapter.kind == "lora", bool(answer["peft"])
    )
    if form == "none" or bits is None:
        yield Fact("quantization.format", f"{FLAGS}.quantization", form != "none", bool(bits))
        return
    packed = form in ("nf4", "fp4")
    yield Fact("quantization.format", f"{FLAGS}.quantization", packed, bits["load_in_4bit"])
    if packed:
        key = f"{FLAGS}.quantization_config"
        kind, compute = bits["bnb_4bit_quant_type"], WORDS[plan.quantization.compute]
        yield Fact("quantization.format", f"{key}.quant_type", form, kind)
        said = bits["bnb_4bit_compute_dtype"]
        yield Fact("quantization.compute", f"{key}.compute_dtype", compute, said)


def _ignored(case: Case, said: str) -> Iterator[str]:
    """Flags that no class has; `update_config` also reports those of other blocks."""
    flags = flat(values_of(case, NAME).get(FLAGS, {}))
    for name in dict.fromkeys(_UNKNOWN.findall(said)):
        if name in flags:
            yield f"{FLAGS}.{name}"


def _lora(_: Case, answers: Answers) -> Mapping[str, Json] | None:
    answer = taken(answers, _FLAGS)
    peft: Mapping[str, Json] | None = None if answer is None else answer["peft"]
    return peft


def _named(key: str) -> str:
    return f"{FLAGS}.lora_config.{key}"


PROGRAMS: Final = (
    Program(_FLAGS, NAME, CONSUMER, _where, _ask, _hear, seconds=SECONDS),
    adapter_program(NAME, _lora, _where, _named, after=_FLAGS),
    *shell_programs(NAME, STYLE),
)
