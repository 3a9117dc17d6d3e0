"""Files for Axolotl before its own validator, in the first and the last release and one between.

What is asked is `axolotl.utils.config.validate_config`, told of the planned device, in an
environment with the transformers, trl, peft and accelerate that the release installs.
"""

from pathlib import Path

import pytest
import yaml

from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import load_text
from tunec.compiler.verify.cases import cases_of, distinct
from tunec.compiler.verify.contract import Case
from tunec.compiler.verify.queries import verify
from tunec.schemas.frozen import replace
from tunec.targets.axolotl.packages import brought
from tunec.targets.registry import TARGETS

SPECS = yaml.safe_load(Path(__file__).with_name("axolotl_specs.yaml").read_text("utf-8"))
RELEASES = ("0.13.2", "0.16.1", "0.19.0")
VALIDATOR = "axolotl validate_config"
NOT_IMPORTED = ("liger", "0.13.2")
"""Its plugin of that release imports more than the validator, and is left out without a word."""
CASES = [(name, at) for name in SPECS for at in RELEASES if (name, at) != NOT_IMPORTED]


def compiled(name: str, release: str) -> list[Case]:
    asked = TARGETS.resolve(f"axolotl@{release}")
    text = yaml.safe_dump({"tunec": 1, "name": f"{name}-{release}", **SPECS[name]})
    result = compile_spec(load_text(text, targets=TARGETS.names()), [asked])
    assert result.ok, [each.message for each in result.diagnostics if each.severity == "error"]
    return cases_of(result, [asked])


@pytest.fixture(scope="module")
def checks():
    cases = [each for name, at in CASES for each in compiled(name, at)]
    return verify(distinct(cases))


def test_specs_are_many():
    assert len(SPECS) >= 20


@pytest.mark.parametrize("release", RELEASES)
def test_the_validator_resolves_what_was_planned(checks, release):
    asked = [each for each in checks if each.consumer == f"axolotl@{release}"]
    validated = [each for each in asked if each.program == VALIDATOR]
    assert [each for each in asked if each.status in ("differs", "refused")] == []
    reasons = {each.reason for each in validated if each.status == "unchecked"}
    if reasons:
        pytest.skip(f"not checked: {'; '.join(sorted(reasons))}")
    assert {each.spec for each in validated} == {
        f"{name}-{at}" for name, at in CASES if at == release
    }
    assert all(len(each.compared) > 30 for each in validated)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("adapter: qlora\n", "lora"),
        ("sample_packing: true\nrl: dpo\n", "sample_packing"),
        ("eval_strategy: steps\n", "eval"),
    ],
)
def test_a_planted_fault_is_refused(change, said):
    """The validator is asked for real: it refuses what its own rules refuse."""
    (case,) = compiled("lora", "0.19.0")
    file = case.delivered["axolotl.yaml"]
    changed = yaml.safe_load(file.text) | yaml.safe_load(change)
    held = {**case.delivered, "axolotl.yaml": replace(file, text=yaml.safe_dump(changed))}
    (check,) = [
        each
        for each in verify([replace(case, delivered=held)])
        if each.program == VALIDATOR and each.status != "unchecked"
    ] or [None]
    if check is None:
        pytest.skip("the validator cannot be asked here")
    assert check.status == "refused"
    assert said in check.reason


@pytest.mark.parametrize("release", RELEASES)
def test_a_plan_follows_the_releases_that_one_brings(release):
    (case,) = compiled("lora", release)
    pins = brought(case.version)
    assert {name: str(case.dialect[name]) for name in case.dialect if name in pins} == {
        name: each for name, each in pins.items() if name != "trl"
    }


def test_kernels_that_the_account_lacks_are_off():
    (case,) = compiled("qlora", "0.19.0")
    written = case.expected["axolotl.yaml"].values
    kernels = {key for key in written if key.endswith("_kernel")}
    assert kernels == {f"lora_{name}_kernel" for name in ("mlp", "qkv", "o", "embedding")}
    assert not any(written[key] for key in kernels)
