"""Expressions of users are compiled where matching takes bounded time, and refused elsewhere."""

import re

import pytest
from tests.small_spec import SPEC

from tunec.compiler.analyses.architecture.expressions import compiled
from tunec.compiler.driver import plan
from tunec.compiler.frontend.load import load_text
from tunec.compiler.resolve import catalogued

USUAL = (
    *(r".*\.(q_proj|k_proj|v_proj)", r"[\w.]+", r"", r"(?>a+)b", r"(x)?(?(1)a|b)"),
    *(r"model\.layers\.(\d+)\.(self_attn|mlp)\.(.*)_proj", r"^(?!.*visual).*\.(q|k|v|o)_proj$"),
    *(r"^(language_model(?=\.).*\.(k_proj|linear_fc2|v_proj|o_proj|q_proj))$", r".*.*.*.*!"),
    *(r"(.*(transformer_blocks|single).*\.(attn|ff).*(to_k|to_q))", r"((a{1,3}){1,3}){1,3}"),
)
ENDLESS = (
    *(r"(a+)+b", r"(a|a)*b", r"(?:a?){30}a{30}", "a?" * 30 + "a" * 30, r".*.*.*.*.*!"),
    *(r"(.*a){9}", r"(?=(a+)+b)a", r"([a-z]+\.?)*!", r"(\w|\w\w)+!", r"((a{0,9}){0,9}){0,9}b"),
)


@pytest.mark.parametrize("expression", USUAL)
def test_usual_ones_are_compiled_as_they_are(expression):
    assert compiled(expression) == re.compile(expression)


@pytest.mark.parametrize("expression", ENDLESS)
def test_one_that_can_take_for_ever_is_refused(expression):
    with pytest.raises(re.error, match="can take too long"):
        compiled(expression)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("a**", "multiple repeat"),
        ("a{99999999999}", "too large"),
        ("(" * 3000, "too deeply|missing"),
    ],
)
def test_what_is_none_is_told(expression, said):
    with pytest.raises(re.error, match=said):
        compiled(expression)


def test_no_name_of_the_catalogue_is_longer_than_is_counted():
    from tunec.compiler.analyses.architecture import expressions
    from tunec.schemas.models.catalogue import card_names

    longest = 0
    for name in card_names():
        for module in catalogued(name).architecture.modules:
            longest = max(longest, len(next(iter(module.names()))))
    assert longest == expressions._LONGEST


def test_a_spec_that_says_one_is_told_where():
    text = SPEC.replace("method: lora", "method: {lora: {targets: '(a+)+b'}}")
    assert text != SPEC
    (fault,) = (d for d in plan(load_text(text)).diagnostics if d.severity == "error")
    assert fault.id == "E0605"
    assert "can take too long" in fault.message
    assert fault.span is not None
