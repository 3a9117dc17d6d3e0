"""Files for Axolotl before its own validator, in the first and the last release and one between.

What is asked is `axolotl.utils.config.validate_config`, told of the planned device, in an
environment with the transformers, trl, peft and accelerate that the release installs.
"""

import pytest
import yaml
from tests.verify.trainer_specs import assert_resolved, checked, compiled, specs_of

from tunec.compiler.verify.queries import verify
from tunec.schemas.frozen import replace
from tunec.targets.axolotl.packages import brought

SPECS = specs_of("axolotl")
RELEASES = ("0.13.2", "0.16.1", "0.19.0")
VALIDATOR = "axolotl validate_config"
NOT_IMPORTED = ("liger", "0.13.2")
"""Its plugin of that release imports more than the validator, and is left out without a word."""
CASES = [(name, at) for name in SPECS for at in RELEASES if (name, at) != NOT_IMPORTED]


@pytest.fixture(scope="module")
def checks():
    return checked("axolotl", SPECS, CASES)


@pytest.mark.parametrize("release", RELEASES)
def test_the_validator_resolves_what_was_planned(checks, release):
    specs = {name for name, at in CASES if at == release}
    assert_resolved(checks, f"axolotl@{release}", VALIDATOR, specs, fewest=31)


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
    (case,) = compiled("axolotl", SPECS, "lora", "0.19.0")
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
    (case,) = compiled("axolotl", SPECS, "lora", release)
    pins = brought(case.version)
    assert {name: str(case.dialect[name]) for name in case.dialect if name in pins} == {
        name: each for name, each in pins.items() if name != "trl"
    }


def test_kernels_that_the_account_lacks_are_off():
    (case,) = compiled("axolotl", SPECS, "qlora", "0.19.0")
    written = case.expected["axolotl.yaml"].values
    kernels = {key for key in written if key.endswith("_kernel")}
    assert kernels == {f"lora_{name}_kernel" for name in ("mlp", "qkv", "o", "embedding")}
    assert not any(written[key] for key in kernels)
