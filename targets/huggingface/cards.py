"""The question to `datasets` about a data set card, and the reading of its answer."""

from collections.abc import Callable
from typing import Any, Final

from tunec.compiler.ir.plan import Plan, training_data
from tunec.compiler.verify.contract import (
    Answers,
    Case,
    NotAsked,
    Program,
    Question,
    TranslatedAnswer,
    Where,
    facts,
)
from tunec.schemas.data_paths import data_kind
from tunec.targets.huggingface.datasets import FOLDER

CARD: Final = f"{FOLDER}/README.md"
_SCRIPT: Final = "tunec.targets.huggingface.consumer"
_KEY: Final = "configs"


def card_program(where: Callable[[Case], Where]) -> Program:
    """`load_dataset_builder` for the card's folder, beside empty files with the plan's paths."""
    return Program("datasets load_dataset_builder", CARD, _SCRIPT, where, _ask, _hear)


def _ask(case: Case, _: Answers) -> Question:
    paths = [_spelled(path) for path in _paths(case.plan)]
    outside = [path for path in paths if path.startswith(("/", "~")) or "://" in path]
    if outside:
        raise NotAsked(f"{outside[0]} lies outside, and no data is read from there")
    folder = f"{case.target.name}/{FOLDER}"
    return {"verb": "card", "folder": folder, "text": case.text(CARD), "paths": paths}


def _paths(plan: Plan) -> list[str]:
    test = plan.data.evaluation
    return [*training_data(plan), *(() if test is None else (test,))]


def _spelled(path: str) -> str:
    """A path whose spelling shows its kind: a directory ends in a slash."""
    return f"{path.rstrip('/')}/" if data_kind(path) == "directory" else path


def _hear(case: Case, answer: Any) -> TranslatedAnswer:
    """The files of each split: the training files in order, and the evaluation file."""
    data, splits = case.plan.data, answer["splits"]
    train, test = splits.get("train", []), splits.get("test", [])
    test_set = data.evaluation
    wanted = [] if test_set is None else [_spelled(test_set)]
    return TranslatedAnswer(
        facts=facts(
            (
                ("data.train", _KEY, _spelled(data.train), next(iter(train), None)),
                ("data.more", _KEY, [_spelled(path) for path in data.more], train[1:]),
                ("data.evaluation", _KEY, wanted, test),
            )
        )
    )
