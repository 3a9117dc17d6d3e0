"""Files for Axolotl with a fault before its own validator, and what the target refuses.

What is asked is `axolotl.utils.config.validate_config`, told of the planned device, in an
environment with the transformers, trl, peft and accelerate that the release installs;
`test_trainers.py` asks it of sound files.
"""

import pytest
import yaml
from tests.verify.trainer_specs import compiled, specs_of

import tunec
from tunec.compiler.verify.queries import verify
from tunec.schemas.frozen import replace
from tunec.targets.axolotl.packages import installed_releases

SPECS = specs_of("axolotl")
RELEASES = ("0.13.2", "0.16.1", "0.19.0")
VALIDATOR = "axolotl validate_config"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("adapter: qlora\n", "lora"),
        ("sample_packing: true\nrl: dpo\n", "sample_packing"),
        ("eval_strategy: steps\n", "eval"),
        ("rl: grpo\ntrl: {num_generations: 1}\n", "num_generations"),
        ("rl: grpo\ntrl: {num_generations: 2, loss_type: [dapo]}\n", "loss_type"),
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
    pins = installed_releases(case.version)
    assert {name: str(case.dialect[name]) for name in case.dialect if name in pins} == {
        name: each for name, each in pins.items() if name != "trl"
    }


def test_kernels_that_the_account_lacks_are_off():
    (case,) = compiled("axolotl", SPECS, "qlora", "0.19.0")
    written = case.expected["axolotl.yaml"].values
    kernels = {key for key in written if key.endswith("_kernel")}
    assert kernels == {f"lora_{name}_kernel" for name in ("mlp", "qkv", "o", "embedding")}
    assert not any(written[key] for key in kernels)


def rewarded(release, asked, method="full", **more):
    spec = {
        "model": "llama-3.2-1b-instruct",
        "method": method,
        "data": {"train": "train.jsonl", "samples": 5000, "sequence": 1024},
        "objective": {"grpo": {"rewards": ["rewards.correct"], **asked}},
        "hardware": "a100-80g-x4",
        **more,
    }
    text = yaml.safe_dump({"tunec": 1, **spec})
    return tunec.compile(text, targets=[f"axolotl@{release}"])


@pytest.mark.parametrize(
    ("release", "asked", "more", "said"),
    [
        ("0.19.0", {"rewards": ["correct"]}, {}, "by its import path"),
        ("0.19.0", {"rewards": ["score.py:correct"]}, {}, "by its import path"),
        ("0.19.0", {"beta": 0.1}, {"engine": "ddp"}, "loaded in fp32"),
        ("0.19.0", {}, {"engine": "fsdp"}, "a second time on the host"),
        ("0.19.0", {}, {"batch": {"global": 16}}, "a whole group"),
        (
            "0.19.0",
            {"generator": "vllm_colocate", "device_share": 0.5},
            {"model": "qwen2.5-14b", "pin": {"zero.stage": 2, "zero.offload_optimizer": "cpu"}},
            "a second time before it trains",
        ),
    ],
)
def test_what_its_trainer_of_rewards_does_not_run_is_told(release, asked, more, said):
    found = rewarded(release, asked, **more)
    messages = [each.message for each in found.diagnostics if each.severity == "error"]
    assert [each for each in messages if said in each], messages
    assert not found.artifacts


def test_an_older_release_asks_for_no_whole_group_of_a_process():
    assert rewarded("0.16.1", {}, batch={"global": 16}).ok
    assert rewarded("0.19.0", {}).planned.plan.batch.global_ >= 4 * 8


def test_a_reference_beside_adapters_is_a_copy_of_them():
    terms = rewarded("0.19.0", {"beta": 0.04}, "lora", engine="ddp").planned.memory.terms
    assert terms["reference adapters"] == terms["adapters"]
    assert "reference adapters" not in rewarded("0.19.0", {}, "lora").planned.memory.terms


def test_prompts_are_counted_as_its_trainer_counts_them():
    """A step takes whole prompts: axolotl 0.16.1 made four of eight, two at a time."""
    few = {"data": {"train": "train.jsonl", "samples": 9, "sequence": 1024}}
    found = rewarded(
        "0.16.1", {"samples": 2}, "lora", batch={"global": 4}, hardware="a100-80g-x1", **few
    )
    (told,) = [each.message for each in found.diagnostics if each.id == "few-steps"]
    assert told == "the run makes 4 optimizer steps of 4 samples"
