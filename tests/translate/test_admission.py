"""A key that a trainer's class inherits is known where the running transformers has it."""

import pytest

from tunec.compiler.lints.kinds import kind_of
from tunec.compiler.translate.admission import knows
from tunec.targets.registry import TARGETS

OLD, NEW = "evaluation_strategy", "eval_strategy"
"""Its name in transformers until 4.46, and since 4.41."""
CASES = {
    ("trl", "0.27.2", "sft"): ("4.40.2", "4.57.6"),
    ("trl", "1.9.2", "dpo"): ("4.40.2", "5.15.1"),
    ("llamafactory", "0.9.3", "llamafactory"): ("4.40.2", "4.51.3"),
    ("ms-swift", "4.0.4", "ms-swift"): ("4.40.2", "4.57.6"),
}
"""Whose file it is, and the two releases of transformers beside it."""


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_transformers_decides_about_its_own_keys(case):
    name, release, kind = case
    target = TARGETS[name]
    file = next(each for each in target.files if kind_of(target, each) == kind)
    for key, is_known in ((OLD, (True, False)), (NEW, (False, True))):
        dialects = [
            target.dialect(target.release(release), {"transformers": each}) for each in CASES[case]
        ]
        known = [knows(target, file, each, key) for each in dialects]
        assert tuple(known) == is_known


@pytest.mark.parametrize(("key", "is_known"), [("max_length", True), ("no_such_key", False)])
def test_the_class_decides_about_what_it_does_not_inherit(key, is_known):
    target = TARGETS["trl"]
    file = next(each for each in target.files if kind_of(target, each) == "sft")
    for transformers in ("4.57.6", "5.23.0"):
        dialect = target.dialect(target.release("0.27.2"), {"transformers": transformers})
        assert knows(target, file, dialect, key) is is_known
