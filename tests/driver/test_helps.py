"""What the helps of refusals give as arguments mends the spec: each is put in, and compiles."""

import re
import shlex

import pytest
from planning import asked, spec_of
from tests.tables import table

from tunec.compiler.driver import compile_spec, plan
from tunec.compiler.frontend.load import load_mapping
from tunec.targets.registry import REGISTRY

OLD = {"hardware": "titan-rtx-gtx-1080-ti", "devices": "all"}
CASES = table(__file__)["cases"]


def outcome(case, settings=()):
    loaded = load_mapping(spec_of(**case), settings, targets=REGISTRY.names())
    assert loaded.spec is not None, loaded.diagnostics
    wanted = asked(loaded)
    return compile_spec(loaded, wanted) if wanted else plan(loaded)


def settings_of(text):
    """Each help's arguments for `--set`, as a shell hands them on."""
    assert text is not None
    said = re.findall(r"`(--set [^`]+)`", text)
    said += [line.strip() for line in text.split("\n") if line.strip().startswith("--set")]
    for arguments in said:
        words = shlex.split(arguments)
        assert set(words[::2]) == {"--set"}
        yield words[1::2]


@pytest.mark.parametrize("name", CASES)
def test_what_a_help_gives_as_arguments_mends_the_spec(name):
    found = outcome(CASES[name])
    (told,) = [each for each in found.diagnostics if each.severity == "error"]
    assert told.id == name.partition(" ")[0]
    ways = list(settings_of(told.help))
    assert ways, told.help
    for settings in ways:
        mended = outcome(CASES[name], settings)
        assert mended.ok, (settings, mended.diagnostics)


def test_each_code_is_tried():
    codes = {name.partition(" ")[0] for name in CASES}
    assert codes >= {"E0602", "E0603", "E0604", "E0605", "E0606", "E0609", "E0702"}
