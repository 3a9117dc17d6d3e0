"""What E0701 offers is true: each way out, pasted as it reads, compiles for what is asked."""

import re
import shlex

import pytest
from planning import asked, spec_of
from tests.tables import table

from tunec.compiler.diagnostics.terminal import render
from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import load_mapping
from tunec.targets.registry import REGISTRY

LONG = {"train": "t.jsonl", "samples": 1000, "sequence": 131072}
PACKED = "--set engine=fsdp --set software.transformers=4.57.6"
PACKED_BY_PEFT = f"{PACKED} --set software.peft=0.20.0"
"""TRL installs PEFT 0.21, which saves no tensor of an adapter below FSDP 1's wrappers."""
CASES = table(__file__)["cases"]


def compiled(changes, arguments=""):
    """What becomes of a spec with arguments as a shell hands them on."""
    words = shlex.split(arguments)
    given = list(zip(words[::2], words[1::2], strict=True))
    assert {option for option, _ in given} <= {"--set", "--hardware"}
    settings = [value for option, value in given if option == "--set"]
    hardware = next((value for option, value in given if option == "--hardware"), None)
    loaded = load_mapping(spec_of(**changes), settings, hardware, targets=REGISTRY.names())
    assert loaded.spec is not None, loaded.diagnostics
    return compile_spec(loaded, asked(loaded), repairing=not arguments)


def offered(found):
    """The arguments of each way out."""
    (told,) = [each for each in found.diagnostics if each.id == "E0701"]
    assert told.help
    return [line.strip() for line in told.help.split("\n") if line.startswith("  --")]


@pytest.mark.parametrize("case", CASES)
def test_each_way_out_compiles_for_what_is_asked(case):
    found = compiled(CASES[case])
    assert found.planned.plan is None
    ways = offered(found)
    assert 0 < len(ways) <= 6
    for arguments in ways:
        mended = compiled(CASES[case], arguments)
        assert mended.ok, (arguments, mended.diagnostics)
        assert mended.planned.memory.required_bytes <= mended.planned.plan.devices.budget


@pytest.mark.parametrize("case", CASES)
def test_each_way_says_what_it_costs(case):
    (told,) = [each for each in compiled(CASES[case]).diagnostics if each.id == "E0701"]
    lines = told.help.split("\n")[1:]
    assert len(lines) == 2 * len(offered(compiled(CASES[case])))
    for cost in lines[1::2]:
        assert re.match(r"    \d+\.\d\d x the time; \S", cost)


@pytest.mark.parametrize("case", CASES)
def test_what_is_shown_fits_a_terminal_and_can_be_pasted(case):
    found = compiled(CASES[case])
    (told,) = [each for each in found.diagnostics if each.id == "E0701"]
    shown = render(told, {})
    assert max(map(len, shown.splitlines()[1:])) <= 100  # the message itself is one line
    joined = re.sub(r" \\\n +", " ", shown)
    assert all(f" {arguments}\n" in joined for arguments in offered(found))


def test_adapters_keep_what_is_said_of_them_where_the_base_is_quantised():
    given = CASES["a long sequence on a small card"]
    (arguments,) = [each for each in offered(compiled(given)) if "qlora" in each] or [
        '--set \'method={qlora: {"rank": 64, "targets": ["q_proj", "v_proj"]}}\''
    ]
    found = compiled({**given, "engine": "none", "data": {**LONG, "sequence": 512}}, arguments)
    adapter = found.planned.plan.adapter
    assert found.planned.plan.quantization.format == "nf4"
    assert (adapter.rank, adapter.targets) == (64, ("q_proj", "v_proj"))


@pytest.mark.parametrize(
    ("case", "way"),
    [
        ("a long full fine-tune", "--set software.trl=1.16.0"),
        ("the same for the Trainer", "--set software.liger-kernel=0.8.0"),
        ("the same for the Trainer", "--set software.trl=1.16.0"),
        ("70B in 4 bits on two cards", PACKED),
        ("70B in 4 bits by TRL", PACKED_BY_PEFT),
        ("70B in 4 bits by TRL, sharded", PACKED_BY_PEFT),
        ("a pin in the way", "--set pin.batch.micro=1"),
        ("8B in full on 24 GB", "--set train.optimizer.name=adalomo --set batch.global=4"),
        ("8B in full by AdaLOMO with too many samples a step", "--set batch.global=2"),
    ],
)
def test_what_loses_nothing_comes_first(case, way):
    assert way in offered(compiled(CASES[case]))[:3]


@pytest.mark.parametrize(
    ("targets", "software", "hardware"),
    [
        (["trl"], {"transformers": "4.57.6", "trl": "0.27.2"}, "rtx-3090-x2"),
        (["trl"], {"transformers": "4.57.6", "trl": "0.24.0"}, "rtx-3090-x2"),
        (["trl"], {"transformers": "4.57.6", "trl": "0.24.0"}, "rtx-4090-x4"),
        (["huggingface", "accelerate"], {"transformers": "4.57.6"}, "rtx-4090-x2"),
    ],
)
def test_fsdp_is_tried_unasked_over_a_packed_base(targets, software, hardware):
    """FSDP with QLoRA of 70B on cards of 24 GB: answer.ai and philschmid published it."""
    case = {**CASES["70B in 4 bits by TRL"], "targets": targets, "software": software}
    found = compiled({**case, "hardware": hardware})
    assert found.ok, found.diagnostics
    plan = found.planned.plan
    assert (plan.parallel.engine, plan.quantization.storage) == ("fsdp", "bf16")
    assert plan.states.trainable == "fp32"
    assert plan.states.weights == "bf16"


def test_a_base_is_packed_as_usual_where_fsdp_is_tried_in_vain():
    case = {**CASES["70B in 4 bits by TRL"], "model": "llama-3.2-3b"}
    plan = compiled(case).planned.plan
    assert plan.parallel.engine != "fsdp"
    assert plan.quantization.storage is None


def test_where_a_target_refuses_what_fits_that_is_told():
    case = {**CASES["70B in 4 bits by TRL"], "targets": ["glm4"]}
    (told,) = [each for each in compiled(case).diagnostics if each.id == "E0701"]
    assert told.help.startswith(f"this fits, but does not compile:\n  {PACKED}")
    assert "cannot express quantization.format nf4" in told.help


def test_pure_bf16_is_offered_where_full_training_does_not_fit():
    ways = offered(compiled(CASES["8B in full on 24 GB with a small host"]))
    full = ways[:2]  # AdaLomo takes as long
    (pure,) = [each for each in full if "states.trainable: bf16" in each]
    assert "paged_adamw_8bit" in pure


def test_pure_bf16_is_not_offered_to_devices_without_it():
    """Weights in bf16 under fp16 fail in the first step, and under fp32 are computed in bf16."""
    given = {"model": "granite-3.1-2b", "method": "full", "targets": []}
    ways = offered(compiled({**given, "hardware": "kaggle-t4-x2"}))
    assert ways
    assert not [each for each in ways if "states.trainable: bf16" in each]


def test_fewer_answers_are_offered_where_all_of_a_step_are_generated_at_once():
    given = {"model": "gemma-2b", "objective": {"grpo": {"rewards": ["accuracy_reward"]}}}
    data = {"train": "t.jsonl", "samples": 20_000, "sequence": 2048}
    ways = offered(compiled({**given, "data": data, "hardware": "t4-x1", "targets": ["trl"]}))
    assert "--set batch.global=16" in ways


def test_the_releases_that_are_offered_are_known():
    assert str(REGISTRY.resolve("trl", {})[1]) == "1.16.0"
    assert str(REGISTRY.resolve("huggingface", {"transformers": "4.57.6"})[1]) == "4.57.6"


def test_the_sum_of_an_infeasible_layout_is_what_it_needs():
    found = compiled(CASES["full fine-tune of 8B on one A100"])
    (told,) = [each for each in found.diagnostics if each.id == "E0701"]
    total = sum(term.value for term in told.sum)
    needs = float(re.search(r"needs ([\d.]+) GiB", told.message)[1])
    assert total / 2**30 == pytest.approx(needs, abs=0.06)
    # 16 bytes a parameter for 16-bit training with fp32 states (ZeRO, arXiv 1910.02054), less the
    # 2 of the weights themselves, which the smallest layout keeps in host memory
    assert "parameters on cpu" in told.notes[0]
    assert needs > 8.03e9 * 14 / 2**30


def test_what_is_pinned_is_named_where_nothing_fits():
    found = compiled(CASES["a pin in the way"])
    (told,) = [each for each in found.diagnostics if each.id == "E0701"]
    assert any("batch.micro 8" in note for note in told.notes)


def test_a_host_too_small_is_told():
    found = compiled(CASES["visualglm on a P100"])
    (told,) = [each for each in found.diagnostics if each.id == "E0701"]
    assert any("host memory" in note for note in told.notes)


def test_what_a_target_refuses_is_not_offered():
    """DeepSpeed's offload fits FLUX on a V100 of 32 GiB, but SimpleTuner trains no adapter so."""
    flux = {
        "model": "flux.1-dev",
        "data": {"train": "images", "resolution": 1024, "samples": 100},
        "hardware": "rtx-4090-x1",
    }
    assert "--hardware v100-32g-x1" in offered(compiled(flux))
    by_simpletuner = offered(compiled({**flux, "targets": ["simpletuner"]}))
    assert "--set method=qlora" in by_simpletuner
    assert "--hardware v100-32g-x1" not in by_simpletuner


def test_an_optimizer_that_is_not_sharded_is_told_of_and_another_is_offered():
    flux = {
        "model": "flux.1-dev",
        "method": "full",
        "data": {"train": "images", "resolution": 1024, "samples": 500},
        "hardware": "h100-80g-x8",
        "train": {"optimizer": "adamw_bf16"},
    }
    (told,) = [each for each in compiled(flux).diagnostics if each.id == "E0701"]
    assert any(note.startswith("DeepSpeed was left out: ") for note in told.notes)
    by_simpletuner = offered(compiled({**flux, "targets": ["simpletuner"]}))
    assert "--set train.optimizer.name=adamw" in by_simpletuner
