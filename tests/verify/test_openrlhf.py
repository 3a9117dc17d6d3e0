"""Flags for OpenRLHF before its own programs, in three releases.

What is asked is `openrlhf.cli.train_sft` or `train_dpo` as it is started, up to its first step: its
parser and the checks behind it, what it loads, shards and deals, and the configuration that its
strategy makes of the flags. That configuration is then DeepSpeed's own to read: what it comes to is
the plan, slot by slot, and an engine is started with it.
"""

from dataclasses import dataclass
from typing import Any

import pytest
from tests.verify.trainer_specs import assert_resolved, checked, compiled, specs_of

from tunec.compiler.verify.contract import Delivered
from tunec.compiler.verify.queries import verify
from tunec.schemas.frozen import replace
from tunec.targets.openrlhf.packages import RELEASES

SPECS = specs_of("openrlhf")
SUPERVISED = {name for name, spec in SPECS.items() if "objective" not in spec}
OF = {
    "openrlhf.cli.train_sft": SUPERVISED,
    "openrlhf.cli.train_dpo": set(SPECS) - SUPERVISED,
}
NEEDS_A_NEWER_ENGINE = {"muon"}
"""DeepSpeed 0.19.1, which openrlhf 0.10.4 pins, steps Muon's matrices by gradients in part."""
EVERY = "openrlhf"


@pytest.fixture(scope="module")
def checks():
    cases = [
        (name, at)
        for name in SPECS
        for at in RELEASES
        if at != RELEASES[0] or name not in NEEDS_A_NEWER_ENGINE
    ]
    return checked(EVERY, SPECS, cases)


def _asked(specs, release):
    return specs - (NEEDS_A_NEWER_ENGINE if release == RELEASES[0] else set())


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("program", OF)
def test_the_program_resolves_what_was_planned(checks, program, release):
    specs = _asked(OF[program], release)
    mine = [each for each in checks if each.spec.removesuffix(f"-{release}") in specs]
    assert_resolved(mine, f"{EVERY}@{release}", program, specs, 40)


@pytest.mark.parametrize("release", RELEASES)
def test_the_configuration_that_it_makes_is_the_plan_to_deepspeed(checks, release):
    assert_resolved(
        checks, f"{EVERY}@{release}", "DeepSpeedConfig", _asked(set(SPECS), release), 15
    )


@pytest.mark.parametrize("release", RELEASES)
def test_an_engine_starts_with_it(checks, release):
    assert_resolved(
        checks, f"{EVERY}@{release}", "deepspeed.initialize", _asked(set(SPECS), release), 6
    )


@dataclass(frozen=True)
class Planted:
    """Other words in the script of one spec, and what then differs."""

    spec: str
    old: str
    new: str
    key: str
    resolved: Any
    slot: str | None = None
    status: str = "differs"
    program: str = "openrlhf.cli.train_sft"


EIGHT, BITS, PAIRS, JOINED = "full-of-eight", "qlora", "pairs-lora", "packed"
ENGINE, ALL_OF_PAIRS = "DeepSpeedConfig", "openrlhf.cli.train_dpo"
FAULTS = {
    "rate": Planted(
        *(EIGHT, "--adam.lr 2e-05", "--adam.lr 0.5", "adam.lr", 0.5),
        slot="optimizer.learning_rate",
    ),
    "rate deleted": Planted(
        *(EIGHT, "  --adam.lr 2e-05 \\\n", "", "adam.lr", 5e-6), slot="optimizer.learning_rate"
    ),
    "length": Planted(
        *(EIGHT, "--data.max_len 2048", "--data.max_len 512", "data.max_len", 512),
        slot="data.sequence",
    ),
    "batch": Planted(
        *(EIGHT, "--train.batch_size 32", "--train.batch_size 64", "train.batch_size", 4),
        slot="batch.accumulation",
    ),
    "warm-up": Planted(
        *(EIGHT, "--lr_warmup_ratio 0.03", "--lr_warmup_ratio 0.3", "lr_warmup_ratio", 94),
        slot="schedule.warmup_steps",
    ),
    "precision": Planted(
        *(EIGHT, "--ds.param_dtype bf16", "--ds.param_dtype fp16", "ds.param_dtype", "fp16"),
        slot="precision.compute",
    ),
    "gradients": Planted(
        *(EIGHT, "  --ds.grad_accum_dtype fp32 \\\n", "", "data_types.grad_accum_dtype"),
        *("bfloat16",),
        slot="states.gradients",
        program=ENGINE,
    ),
    "stage": Planted(
        *(EIGHT, "--ds.zero_stage 2", "--ds.zero_stage 1", "zero_optimization.stage", 1),
        slot="zero.stage",
        program=ENGINE,
    ),
    "offload": Planted(
        *(EIGHT, "--ds.zero_stage 2", "--ds.zero_stage 2 --ds.adam_offload"),
        *("zero_optimization.offload_optimizer.device", "cpu"),
        slot="zero.offload_optimizer",
        program=ENGINE,
    ),
    "clipping": Planted(
        *(EIGHT, "--max_norm 1.0", "--max_norm 0.5", "gradient_clipping", 0.5),
        slot="optimizer.max_grad_norm",
        program=ENGINE,
    ),
    "rank": Planted(
        *(BITS, "--ds.lora.rank 16", "--ds.lora.rank 8", "ds.lora.rank", 8), slot="adapter.rank"
    ),
    "bits": Planted(
        *(BITS, "  --ds.load_in_4bit \\\n", "", "ds.load_in_4bit", False),
        slot="quantization.format",
    ),
    "no such module": Planted(
        *(BITS, "target_modules down_proj", "target_modules c_attn", "ds.lora.target_modules"),
        *(["c_attn", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"],),
        slot="adapter.targets",
    ),
    "packing": Planted(
        *(JOINED, "--ds.packing_samples \\\n", "\\\n", "ds.packing_samples", False),
        slot="data.packing",
    ),
    "beta": Planted(
        *(PAIRS, "--model.beta 0.1", "--model.beta 0.9", "model.beta", 0.9),
        slot="objective.beta",
        program=ALL_OF_PAIRS,
    ),
    "reference": Planted(
        *(PAIRS, "--model.beta 0.1", "--model.beta 0.1 --ref.model_name_or_path other"),
        *("ref.model_name_or_path", "other"),
        slot="objective.reference",
        program=ALL_OF_PAIRS,
    ),
    "unknown flag": Planted(
        *(EIGHT, "--max_norm 1.0", "--max_norm 1.0 --l2 0.1", "", None), status="refused"
    ),
    "word": Planted(*(EIGHT, "--optim adam", "--optim sgd", "", None), status="refused"),
    "type": Planted(
        *(EIGHT, "--train.max_epochs 1", "--train.max_epochs 1.5", "", None), status="refused"
    ),
    "together": Planted(
        *(EIGHT, "  --data.apply_chat_template \\\n", "", "", None), status="refused"
    ),
}


def _edited(name, fault):
    (sound,) = compiled(EVERY, SPECS, fault.spec, RELEASES[-1])
    (old,) = sound.delivered.values()
    assert fault.old in old.text, old.text
    text = old.text.replace(fault.old, fault.new)
    return replace(sound, spec=name, delivered={old.name: Delivered(old.name, name, text)})


@pytest.fixture(scope="module")
def planted():
    found = verify([_edited(name, fault) for name, fault in FAULTS.items()])
    return {(each.spec, each.program): each for each in found}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(planted, name):
    fault = FAULTS[name]
    check = planted[name, fault.program]
    if check.status == "unchecked":
        pytest.skip(f"not checked: {check.reason}")
    assert check.status == fault.status, check
    keys = (fault.key, f"flags.{fault.key}")
    found = [each for each in check.differences if each.key in keys]
    if fault.status == "differs":
        assert fault.resolved in [each.resolved for each in found], check
        assert fault.slot in {each.slot for each in found}
