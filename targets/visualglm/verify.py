"""How SwissArmyTransformer's parser is run on the flags and the file."""

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
from tunec.targets.deepspeed.verify import beside, engine_programs
from tunec.targets.scripts import sources
from tunec.targets.scripts.command import FLAGS
from tunec.targets.scripts.verify import flag_words, shell_programs
from tunec.targets.visualglm.schema import CONSUMER, REQUIREMENTS, SOURCES
from tunec.targets.visualglm.target import NAME, STYLE, VERSION

_PARSER: Final = "sat get_args"
_FILE: Final = "deepspeed_config"


def _where(case: Case) -> Where:
    return Where(case.target.package, VERSION, REQUIREMENTS)


def _ask(case: Case, _: Answers) -> Question | None:
    """The question about the script. Raises EnvironmentUnavailable if its source is missing."""
    if NAME not in case.delivered:
        return None
    return {
        "verb": "resolve",
        "scripts": [str(sources.obtain(each, case.clones)) for each in SOURCES],
        "argv": flag_words(case, NAME),
        "files": beside(case),
        **case.machine(),
    }


def _hear(case: Case, answer: Any) -> TranslatedAnswer:
    said = ((key, value) for key, value in answer["values"].items() if key != _FILE)
    values = {key: _alone(value) for key, value in said}
    flags = {f"{FLAGS}.{key.replace('_', '-')}": value for key, value in values.items()}
    named = {f"{FLAGS}.{key}": value for key, value in values.items()}
    return TranslatedAnswer(
        values={**flags, **named, f"{FLAGS}.split": values.get("split")},
        facts=tuple(_facts(case.plan, answer["values"])),
    )


def _alone(value: Json) -> Json:
    """The value of a flag with several words, if it has one."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _facts(plan: Plan, values: Mapping[str, Any]) -> Iterator[Fact]:
    """The flags after the file has overridden them: `get_args`."""
    precision = plan.precision.compute
    pairs = (
        ("precision.compute", "fp16", precision == "fp16"),
        ("precision.compute", "bf16", precision == "bf16"),
        ("batch.micro", "batch_size", plan.batch.micro),
        ("batch.accumulation", "gradient_accumulation_steps", plan.batch.accumulation),
        ("optimizer.learning_rate", "lr", plan.optimizer.learning_rate),
        ("optimizer.weight_decay", "weight_decay", plan.optimizer.weight_decay),
    )
    for slot, name, planned in pairs:
        yield Fact(slot, f"{FLAGS}.{name}", planned, values[name])


def _configured(_: Case, answers: Answers) -> Json:
    """The configuration that the script passes to DeepSpeed: the file, as parsed."""
    answer = taken(answers, _PARSER)
    return None if answer is None else answer["values"].get(_FILE)


PROGRAMS: Final = (
    Program(_PARSER, NAME, CONSUMER, _where, _ask, _hear),
    *engine_programs(_configured, after=_PARSER),
    *shell_programs(NAME, STYLE),
)
