"""How TRL's scripts are run on their files, and how their answers are read."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.consumers.sets import choose
from tunec.compiler.target import Json
from tunec.compiler.verify.contract import (
    Answers,
    Case,
    Program,
    Question,
    TranslatedAnswer,
    Where,
    known_environment,
    taken,
)
from tunec.schemas.frozen import replace
from tunec.targets.deepspeed.config import NAME as DS_CONFIG
from tunec.targets.huggingface.cards import card_program
from tunec.targets.huggingface.methods import METHODS, Method
from tunec.targets.huggingface.verify import (
    SCRIPT,
    SECONDS,
    adapter_program,
    auto_programs,
    derived_facts,
    hear_script,
    script_question,
)

_FILES: Final[Mapping[Method, str]] = {method: f"{method}.yaml" for method in METHODS}
_LORA: Final[Mapping[str, str]] = {
    "target_modules": "lora_target_modules",
    "modules_to_save": "lora_modules_to_save",
}
"""trl trainer/model_config.py `ModelConfig`, trainer/utils.py `get_peft_config`."""


def where(case: Case) -> Where:
    """The set of the release of TRL, with the transformers that `software` names."""
    known = known_environment("trl", case.version)
    named = case.software.get("transformers")
    if named is None or f"transformers=={named}" in known.pins:
        return known
    around = choose("transformers", named).requirements
    pins = (pin for pin in around if not pin.startswith("trl=="))
    return replace(known, pins=(*pins, f"trl=={known.version}"))


def _program(method: Method, file: str) -> Program:
    def ask(case: Case, _: Answers) -> Question:
        return script_question(case, method, file)

    def hear(case: Case, answer: Any) -> TranslatedAnswer:
        heard = hear_script(case, answer)
        return replace(heard, facts=(*heard.facts, *derived_facts(case.plan, answer["derived"])))

    return Program(_name(method), file, SCRIPT, where, ask, hear, seconds=SECONDS)


def _name(method: Method) -> str:
    return f"trl {method}"


def _beside(case: Case, _: Answers) -> Question | None:
    """The question for the script's file, whose class fills what ds_config.json leaves to it."""
    held = [(method, file) for method, file in _FILES.items() if file in case.delivered]
    if not held or DS_CONFIG not in case.delivered:
        return None
    return script_question(case, *held[0])


def _adapter(method: Method, file: str) -> Program:
    """The adapter that the script builds from its file."""

    def lora(_: Case, answers: Answers) -> Mapping[str, Json] | None:
        answer = taken(answers, _name(method))
        made: Mapping[str, Json] | None = None if answer is None else answer["adapter"]
        return made

    return adapter_program(file, lora, where, lambda key: _LORA.get(key, ""), after=_name(method))


PROGRAMS: Final = (
    *(_program(method, file) for method, file in _FILES.items()),
    *auto_programs(SCRIPT, where, _beside),
    *(_adapter(method, file) for method, file in _FILES.items()),
    card_program(where),
)
