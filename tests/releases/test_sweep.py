"""What releases refuse of everyday runs: each refusal is judged against the consumer's source."""

from collections.abc import Mapping

import pytest
from tests.releases.sweep import SPECS, refusals, releases, sweep

from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import load_text
from tunec.compiler.verify.cases import cases_of
from tunec.compiler.verify.queries import verify
from tunec.targets.registry import REGISTRY

TRUE: Mapping[str, str] = {
    "trl cannot express adapter.dora": "ModelConfig has `use_dora` from 0.16",
    "trl cannot express adapter.rslora": "ModelConfig has `use_rslora` from 0.10",
    "trl cannot express objective.kind dpo": "0.8 has no DPOConfig",
    "trl cannot express objective.kind grpo": "no script before 0.14, one of a reward model until "
    "0.17, and `main` of 0.18 and 0.19 hands on a `reward_model` that functions leave unset",
    "trl cannot express objective.kind reward": "no scripts/reward.py before 0.24",
    "trl cannot express quantization.format": "grpo.py of 0.20 and 0.21 loads by name alone",
}
"""Refusals of TRL by their first words, each with what the source says."""
FIXED = (
    *(("qlora in bf16", f"trl@{release}") for release in ("0.8", "0.10", "0.19", "0.25", "1.16")),
    *(("qlora in fp16", f"trl@{release}") for release in ("0.12", "0.22", "0.25")),
    *(("dpo by qlora", f"trl@{release}") for release in ("0.12", "0.27", "0.28", "0.29")),
    *(("grpo", f"trl@{release}") for release in ("0.20", "0.22", "0.25", "0.26")),
    *(("grpo by qlora", f"trl@{release}") for release in ("0.22", "0.25", "0.26")),
    *(("reward by qlora", f"trl@{release}") for release in ("0.24", "0.26", "1.3", "1.5", "1.16")),
    *(("full on NVMe", f"deepspeed@{release}") for release in ("0.15.0", "0.16.0", "0.16.2")),
    *(("full by FSDP", f"huggingface@{release}") for release in ("4.40", "4.57", "5.0", "5.23")),
)
ASKED = {
    "transformers": ("4.41", "4.46", "4.51", "4.55", "5.0", "5.10", "5.18", "5.24"),
    "trl": ("0.19", "0.22", "0.25", "1.6", "1.11"),
    "deepspeed": ("0.15.0", "0.16.0", "0.17.0", "0.18.2", "0.19.3"),
}
TARGETS = {"transformers": "huggingface", "trl": "trl", "deepspeed": "deepspeed"}
BETWEEN = [(TARGETS[name], each) for name, held in ASKED.items() for each in held]


@pytest.mark.parametrize(("name", "asked"), FIXED)
def test_a_release_that_runs_it_is_not_refused(name, asked):
    target, _, release = asked.partition("@")
    assert [*refusals(name, target, release)] == []


def test_specs_are_many():
    assert len(SPECS) >= 20
    assert len(releases("trl")) > 35


@pytest.mark.nightly
def test_every_refusal_of_trl_is_judged():
    found = sweep(("trl",), tuple(name for name in SPECS if "evaluated" not in name))
    unjudged = {
        refusal: sorted(places)
        for refusal, places in found.items()
        if not any(refusal.partition(" ")[2].startswith(words) for words in TRUE)
        and " fsdp." not in refusal  # which transformers runs beside is not named
    }
    assert unjudged == {}


def checked(name, target, release, software=""):
    loaded = load_text(SPECS[name] + software, targets=REGISTRY.names())
    asked = [REGISTRY.resolve(f"{target}@{release}", loaded.spec.software)]
    result = compile_spec(loaded, asked)
    return verify(cases_of(result, asked)) if result.ok else ()


def wrong(found):
    return [each for each in found if each.status in ("differs", "refused")]


@pytest.mark.parametrize(
    ("name", "target", "release"),
    [("qlora in bf16", "trl", "0.19"), ("grpo by qlora", "trl", "0.22")],
)
def test_the_real_script_comes_to_the_plan(name, target, release):
    found = checked(name, target, release)
    assert found
    if all(each.status == "unchecked" for each in found):
        pytest.skip(found[0].reason)
    assert wrong(found) == []


@pytest.mark.nightly
@pytest.mark.parametrize(("target", "release"), BETWEEN)
def test_releases_between_come_to_the_plan(target, release):
    found = [each for name in SPECS for each in checked(name, target, release)]
    assert len(found) >= 10
    assert wrong(found) == []


@pytest.mark.nightly
def test_trl_beside_a_transformers_of_another_season():
    """The keys of each come from the release that it is: 4.57 has a share of warm-up, 5 has not."""
    found = checked("lora", "trl", "1.16.0", "software: {transformers: 4.57.6}\n")
    assert "same" in {each.status for each in found}
    assert wrong(found) == []
