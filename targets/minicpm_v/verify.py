"""How finetune.py of OpenBMB/MiniCPM-V is run on its flags, and how its answers are read."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.target import Json
from tunec.compiler.verify.contract import Answers, Case, Program, Question, TranslatedAnswer, taken
from tunec.targets.deepspeed.verify import beside
from tunec.targets.huggingface.verify import (
    SECONDS,
    adapter_program,
    auto_programs,
    derived_facts,
    run_of,
    settled,
    where,
)
from tunec.targets.minicpm_v.schema import SOURCES
from tunec.targets.minicpm_v.target import NAME, STYLE
from tunec.targets.minicpm_v.versions import commit
from tunec.targets.scripts import sources
from tunec.targets.scripts.command import FLAGS
from tunec.targets.scripts.verify import flag_words, shell_programs

SCRIPT: Final = "tunec.targets.minicpm_v.consumer"
_PARSER: Final = "finetune.py HfArgumentParser"
_LORA: Final[Mapping[str, str]] = {
    "r": "lora_r",
    "lora_alpha": "lora_alpha",
    "target_modules": "lora_target_modules",
    "lora_dropout": "lora_dropout",
    "bias": "lora_bias",
}
_ALSO, _VISION = ("embed_tokens", "resampler"), "vpm"
"""finetune/finetune.py `train`: modules_to_save, and LoraConfig(...) of the flags."""


def _ask(case: Case, _: Answers) -> Question | None:
    """The question about the script. Raises EnvironmentUnavailable if its source is missing."""
    if NAME not in case.delivered:
        return None
    return {
        "verb": "resolve",
        "source": str(sources.obtain(SOURCES[commit(case.dialect)[:7]], case.clones)),
        "argv": flag_words(case, NAME),
        "files": beside(case),
        **run_of(case),
    }


def _hear(case: Case, answer: Any) -> TranslatedAnswer:
    told = settled(case, answer["values"])
    return TranslatedAnswer(
        values={f"{FLAGS}.{key}": value for key, value in told.items()},
        facts=derived_facts(case.plan, answer["derived"], f"{FLAGS}."),
    )


def _lora(_: Case, answers: Answers) -> Mapping[str, Json] | None:
    """The adapter that `train` creates from the parsed flags."""
    answer = taken(answers, _PARSER)
    if answer is None or not answer["values"]["use_lora"]:
        return None
    said = answer["values"]
    also = [*_ALSO, *([_VISION] if said["tune_vision"] else [])]
    made = {key: said[name] for key, name in _LORA.items()}
    return {**made, "modules_to_save": also, "peft_type": "LORA"}


def _named(key: str) -> str:
    words = {**_LORA, "modules_to_save": "tune_vision"}
    return f"{FLAGS}.{words.get(key, key)}"


PROGRAMS: Final = (
    Program(_PARSER, NAME, SCRIPT, where, _ask, _hear, seconds=SECONDS),
    *auto_programs(SCRIPT, where, _ask),
    adapter_program(NAME, _lora, where, _named, after=_PARSER, resolves=False),
    *shell_programs(NAME, STYLE),
)
