"""What tunec and the real programs say of a pair: refused or not, and the values that hold."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pairs import ARGUMENTS, CONFIG, Pair

from tunec.compiler.consumers.environments import prepare
from tunec.compiler.consumers.queries import ConsumerFailed, ask_each
from tunec.compiler.consumers.sets import choose
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.lints.environment import Environment
from tunec.compiler.lints.lint import Linted, lint_texts
from tunec.targets.registry import REGISTRY

_AT_LOAD: Final = frozenset({"parse", "load", "init"})
_STEPS: Final = 100
_SIZE: Final = 64
"""`hidden_size` of the model: any would do."""
_CLIENT: Final = "AdamW"
"""What a script brings where the file names no optimizer: the trainer's default is this class."""


@dataclass(frozen=True, slots=True)
class Real:
    """What the real programs made of a pair."""

    refusal: str
    """Empty where they took it."""
    config: Mapping[str, Any]
    """DeepSpeed's values by dotted key; empty where it was not reached."""
    arguments: Mapping[str, Any]
    """TrainingArguments' fields; empty where there are none or they were refused."""
    is_one_run: bool = True
    """Whether the arguments name the config: otherwise the two were never seen together."""


def linted(pair: Pair, deepspeed: str, transformers: str) -> Linted:
    """The pair as `tunec lint` reads it, both releases named."""
    software = {"deepspeed": deepspeed, "transformers": transformers}
    readers = () if pair.arguments is not None else ("deepspeed",)
    surroundings = Environment(world=pair.world, software=software, readers=readers)
    return lint_texts(pair.files, REGISTRY.readable(), surroundings)


def rejections(linted: Linted) -> list[Diagnostic]:
    """The errors that say that the run does not start."""
    return [
        each
        for each in linted.diagnostics
        if each.severity == "error" and each.consequence in (None, *_AT_LOAD)
    ]


def asked(pairs: Sequence[Pair], deepspeed: str, transformers: str) -> list[Real]:
    """Every pair handed to the real programs: the trainer's parser and filling, then DeepSpeed."""
    held = _trainer([each for each in pairs if each.arguments is not None], transformers)
    filled = iter(held)
    trained = [next(filled) if each.arguments is not None else None for each in pairs]
    questions = [_question(pair, answer) for pair, answer in zip(pairs, trained, strict=True)]
    answers = iter(_ask("deepspeed", deepspeed, [each for each in questions if each]))
    return [
        _told(pair, answer, next(answers) if question else None)
        for pair, answer, question in zip(pairs, trained, questions, strict=True)
    ]


def _trainer(pairs: Iterable[Pair], version: str) -> list[Any]:
    questions = [
        {
            "verb": "resolve",
            "json": each.files[ARGUMENTS],
            "files": {CONFIG: each.files[CONFIG]},
            "world_size": each.world,
            "model_config": {"hidden_size": _SIZE},
            "max_steps": _STEPS,
        }
        for each in pairs
    ]
    return _ask("transformers", version, questions)


def _ask(package: str, version: str, questions: list[Any]) -> list[Any]:
    environment = prepare(choose(package, version).requirements)
    name = {"transformers": "huggingface"}.get(package, package)
    answers = ask_each(environment, f"tunec.targets.{name}.consumer", questions, 300.0)
    for each in answers:
        if isinstance(each, ConsumerFailed):
            raise each
    return answers


def _question(pair: Pair, trained: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What DeepSpeed is asked; None where it is not reached."""
    if trained is None:
        config = pair.config
    elif trained["refused"] is None and trained["deepspeed"] is not None:
        config = trained["deepspeed"]
    else:
        return None
    named = config.get("optimizer")
    is_client_s = not (named.get("type") if isinstance(named, dict) else named)
    client = _CLIENT if is_client_s else None
    if trained is not None and client:
        # accelerate 1.15.0 accelerator.py `_prepare_deepspeed`
        config = {**config, "zero_allow_untested_optimizer": True}
    world, asked = pair.world, {"verb": "resolve", "config": config}
    return {**asked, "world_size": world, "client_optimizer": client}


def _told(pair: Pair, trained: Mapping[str, Any] | None, engine: Any) -> Real:
    arguments = trained["values"] if trained else {}
    named = trained is None or (pair.arguments or {}).get("deepspeed") == CONFIG
    for answer in (trained, engine):
        if answer is not None and answer["refused"]:
            told = answer["refused"]
            text = f"{told['stage']}: {told['type']}: {told['message']}"
            is_one = named or (trained is not None and trained["refused"] is not None)
            return Real(text, {}, arguments, is_one)
    return Real("", engine["values"] if engine else {}, arguments, named)
