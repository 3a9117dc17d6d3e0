"""The programs whose names are known are those whose releases decide something."""

from tunec.compiler.frontend.software import PROGRAMS
from tunec.targets.registry import TARGETS


def test_every_program_of_a_target_is_known_by_name():
    targets = TARGETS.readable().values()
    read = {each.package for each in targets} | {name for each in targets for name in each.beside}
    assert read - {""} <= set(PROGRAMS)
    assert set(PROGRAMS) - read == {"liger-kernel"}, "what passes ask for beside the targets"
