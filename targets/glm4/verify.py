"""The questions to the scripts of zai-org/GLM-4 about finetune.yaml, and their answers."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.target import Json
from tunec.compiler.verify.contract import Answers, Case, Program, Question, TranslatedAnswer, Where
from tunec.compiler.verify.delivery import values_of
from tunec.targets.deepspeed.config import NAME as DS_CONFIG
from tunec.targets.glm4.configuration import NAME
from tunec.targets.glm4.schema import SOURCES
from tunec.targets.glm4.target import SCRIPT_NAME, STYLE
from tunec.targets.glm4.versions import commit
from tunec.targets.huggingface.verify import (
    SECONDS,
    adapter_program,
    auto_programs,
    derived_facts,
    in_order,
    run_of,
    settled,
)
from tunec.targets.huggingface.verify import where as on_transformers
from tunec.targets.scripts import sources
from tunec.targets.scripts.verify import shell_programs

SCRIPT: Final = "tunec.targets.glm4.consumer"
_RUAMEL: Final = "ruamel.yaml==0.18.6"
"""The package with which the scripts read the file, as their requirements.txt pins it."""
_CONFIGURATION: Final = "FinetuningConfig.from_file"
_TRAINING, _ADAPTER = "training_args", "peft_config"


def _where(case: Case) -> Where:
    """The environment of transformers, with the package that reads the file."""
    known = on_transformers(case)
    return Where(known.consumer, known.version, (*known.pins, _RUAMEL))


def _ask(case: Case, _: Answers) -> Question | None:
    """The question to the script. Raises EnvironmentUnavailable if its source is unavailable."""
    if NAME not in case.delivered:
        return None
    names = [each for each in (NAME, DS_CONFIG) if each in case.delivered]
    return {
        "verb": "resolve",
        "source": str(sources.obtain(SOURCES[commit(case.dialect)[:7]], case.clones)),
        "files": {name: case.text(name) for name in names},
        **run_of(case),
    }


def _hear(case: Case, answer: Any) -> TranslatedAnswer:
    values = dict(answer["values"])
    training = {**values[_TRAINING], "generation_config": values.pop("generation_config")}
    inner = settled(case, training)
    told = {f"{_TRAINING}.{key}": value for key, value in inner.items()}
    others = settled(case, {key: each for key, each in values.items() if key != _TRAINING})
    prefix = f"{_TRAINING}."
    return TranslatedAnswer(
        values={**others, **told, **_ordered(case, values)},
        facts=derived_facts(case.plan, answer["derived"], prefix),
    )


def _ordered(case: Case, values: Mapping[str, Any]) -> dict[str, Json]:
    return {_named(key): order for key, order in in_order(case.plan, values.get(_ADAPTER)).items()}


def _lora(case: Case, _: Answers) -> Mapping[str, Json] | None:
    found = values_of(case, NAME)
    block: Mapping[str, Json] | None = found.get(_ADAPTER)
    return block


def _named(key: str) -> str:
    return f"{_ADAPTER}.{key}"


PROGRAMS: Final = (
    Program(_CONFIGURATION, NAME, SCRIPT, _where, _ask, _hear, seconds=SECONDS),
    *auto_programs(SCRIPT, _where, _ask),
    adapter_program(NAME, _lora, on_transformers, _named),
    *shell_programs(SCRIPT_NAME, STYLE),
)
