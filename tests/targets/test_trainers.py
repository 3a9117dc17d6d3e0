"""The trainers of the five cases: what is written is read back, and nothing else is said."""

import re
import shlex
import subprocess
from collections.abc import Mapping

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version
from tests.plans import REWARD, ZERO_3, plan_of
from tests.random_plans import plans
from tests.slot_coverage import lost_in, said_in

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.emit import emit
from tunec.compiler.frontend.parse import parse
from tunec.compiler.ir.ledger import Rank
from tunec.compiler.ir.plan import Plan
from tunec.compiler.read import found_in, found_plain, read, recognise
from tunec.compiler.target import Artifact, Found, Target
from tunec.targets.llama_cookbook.fsdp import FSDP
from tunec.targets.registry import TARGETS

NAMES = ("glm4", "minicpm-v", "llama-cookbook", "visualglm")

SUITED = {
    "glm4": {
        "model.kind": ("causal-lm", "vision-language"),
        "model.family": ("chatglm", "glm4"),
        "data.train": ("train.jsonl", "set/train.jsonl"),
        "launch.script": ("train.py", "finetune.py", "finetune_demo/finetune_vision.py"),
        "states.weights": ("bf16",),
        "precision.compute": ("bf16",),
        "attention.implementation": ("sdpa",),
        "quantization.format": ("none",),
    },
    "minicpm-v": {
        "model.kind": ("vision-language",),
        "model.path": ("openbmb/MiniCPM-V-2_6", "models/MiniCPM-Llama3-V-2_5"),
        "data.train": ("train.json",),
        "launch.script": ("train.py", "finetune/finetune.py"),
        "attention.implementation": ("sdpa",),
        "quantization.format": ("none",),
        "adapter.also_train": (
            ("llm.model.embed_tokens", "resampler"),
            ("llm.model.embed_tokens", "resampler", "vpm"),
        ),
        "adapter.frozen": ((), ("vision",), ("text",)),
    },
    "llama-cookbook": {
        "model.kind": ("causal-lm",),
        "model.family": ("llama",),
        "model.trust_remote_code": (False,),
        "data.train": ("samsum", "grammar", "sets/mine.py", "sets/mine.py:get"),
        "data.evaluation": (None,),
        "data.images": (0,),
        "schedule.evaluation_steps": (None,),
        "schedule.epochs": (None, 1.0, 3.0),
        "attention.implementation": ("sdpa",),
        "optimizer.name": ("adamw",),
        "optimizer.beta1": (0.9,),
        "optimizer.beta2": (0.999,),
        "optimizer.epsilon": (1e-8,),
        "adapter.bias": ("none",),
        "adapter.also_train": ((),),
        "launch.launcher": ("python",),
        "launch.script": ("train.py", "llama_cookbook.finetuning"),
        "runtime.report_to": ((), ("wandb",)),
        "runtime.dataloader_pin_memory": (True,),
    },
    "visualglm": {
        "model.path": ("THUDM/visualglm-6b",),
        "model.kind": ("vision-language",),
        "precision.compute": ("fp16", "fp32"),
        "quantization.format": ("none", "nf4"),
        "quantization.double": (True,),
        "adapter.kind": ("lora",),
        "adapter.alpha": (1.0,),
        "adapter.dropout": (0.0,),
        "adapter.targets": (r"transformer\.layers\.\d+\.attention\.(query_key_value|dense)",),
        "adapter.bias": ("none",),
        "adapter.also_train": ((),),
        "data.images": (1,),
        "schedule.steps": (None, 300, 3000),
        "schedule.warmup_share": (None, 0.03),
        "schedule.warmup_steps": (6, 30),
        "schedule.epochs": (None, 2.0),
        "launch.script": ("train.py", "finetune_visualglm.py"),
        "runtime.dataloader_pin_memory": (True,),
    },
}
"""Values that the real models of a trainer have, so that more than refusals is tried."""
ENGINES = {"glm4": (None,), "llama-cookbook": ("none", "fsdp")}


@st.composite
def suited(draw: st.DrawFn, name: str) -> Plan:
    """A random plan with what the target requires, and mostly of its own models."""
    target = TARGETS[name]
    engine = target.requires.get("parallel.engine") or draw(st.sampled_from(ENGINES[name]))
    plan = draw(plans(engine))
    changes = {
        path: draw(st.sampled_from(values))
        for path, values in SUITED[name].items()
        if draw(st.integers(0, 9))
    }
    if name == "llama-cookbook" and engine == "fsdp":
        changes |= FSDP if draw(st.integers(0, 9)) else {}
        changes["launch.launcher"] = "torchrun"
    values = {**plan.values(), **changes, **target.requires}
    if values["precision.compute"] != "fp16":
        values |= {"precision.loss_scaling": "none", "precision.deprecated_fp16": False}
    return Plan.of(values)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Target, Plan, Version]:
    name = draw(st.sampled_from(NAMES))
    release = draw(st.sampled_from(TARGETS[name].releases))
    return TARGETS[name], draw(suited(name)), Version(release)


def found(target: Target, artifact: Artifact) -> Mapping[str, Found]:
    """The keys of an emitted text, through the parsers that read anybody's files."""
    file = next(each for each in target.files if each.name == artifact.name)
    if file.parse is not None:
        return found_plain(file.parse(artifact.text))
    node, faults = parse(artifact.text, artifact.name, artifact.format)
    assert not faults
    return found_in(node)


@given(cases())
def test_every_said_slot_comes_back(case):
    target, plan, version = case
    artifacts, diagnostics = emit(target, plan, version)
    assert artifacts
    definitions = read(target, {each.name: found(target, each) for each in artifacts}, version)
    observed: dict[str, set[object]] = {}
    assumed: dict[str, set[object]] = {}
    for each in definitions:
        into = observed if each.rank is Rank.OBSERVED else assumed
        into.setdefault(each.slot, set()).add(each.value)
    for slot in said_in(target, plan, version, artifacts) - lost_in(diagnostics):
        assert observed.get(slot) or assumed.get(slot), slot
        assert plan[slot] in (observed.get(slot) or assumed[slot]), slot


@given(cases())
def test_files_agree_with_each_other(case):
    target, plan, version = case
    artifacts, diagnostics = emit(target, plan, version)
    said = said_in(target, plan, version, artifacts) - lost_in(diagnostics)
    documents = {each.name: found(target, each) for each in artifacts}
    for definition in read(target, documents, version):
        if definition.rank is Rank.OBSERVED and definition.slot in said:
            assert definition.value == plan[definition.slot], definition


@given(cases())
def test_faults_are_losses_and_refusals_only(case):
    """Nothing that is written breaks the reader's own schema, and nothing raises."""
    _, diagnostics = emit(*case)
    known = {"E0901", "E0905", "optimizer-left-to-script"}
    assert [each for each in diagnostics if each.id not in known] == []


@given(cases())
def test_texts_are_deterministic_recognised_and_say_their_values(case):
    target, plan, version = case
    artifacts, _ = emit(target, plan, version, header=("made by a test",))
    assert emit(target, plan, version, header=("made by a test",))[0] == artifacts
    for artifact in artifacts:
        if artifact.format == "shell" and "script" not in artifact.values:
            continue  # the plan's kind of model has no script, which is an error
        file = recognise(target, dict(artifact.values))
        assert file is not None
        assert file.name == artifact.name
        if artifact.format == "yaml":
            assert yaml.safe_load(artifact.text) == artifact.values
        if artifact.format != "json":
            assert "# made by a test\n" in artifact.text


@given(cases())
def test_a_shell_gives_the_program_the_words_that_were_meant(case):
    """bash itself splits the command: every word arrives as the rows gave it."""
    target, plan, version = case
    for artifact in emit(target, plan, version)[0]:
        if artifact.format != "shell" or not {"script", "launcher"} <= set(artifact.values):
            continue
        if artifact.values.get("nodes", 1) > 1:
            continue
        shown = artifact.text.replace("exec ", "printf '%s\\0' ")
        shown = shown.replace("mkdir -p ", ": ")  # the folder of the output would stay here
        done = subprocess.run(["bash", "-c", shown], capture_output=True, check=True)
        words = done.stdout.decode().split("\0")[:-1]
        script = artifact.values["script"]
        assert words[words.index(script[0]) :][: len(script)] == script
        assert shlex.split(shlex.join(words)) == words


# ── what the real scripts do not run ─────────────────────────────────────────────────────────────

SEES = {"model.kind": "vision-language", "model.family": "chatglm", "data.images": 1}
ALONE = {"parallel.engine": "none", "parallel.world": 1, "parallel.data": 1, "zero.stage": 0}
SHARDED = {"parallel.engine": "fsdp", "launch.launcher": "accelerate", "zero.stage": 0}
QUANTIZED = {"quantization.format": "nf4", "devices.per_node": 2}
REFUSED = [
    ("glm4", "5.23.0", {}, "token numbers of GLM-4"),
    ("glm4", "5.23.0", {"data.train": "train.json"}, "no training data but .jsonl"),
    ("glm4", "5.23.0", {"schedule.evaluation_steps": 5}, "refuses to evaluate"),
    ("glm4", "4.44.2", SEES, "does not work with DeepSpeed"),
    ("glm4", "4.40.2", {**SEES, **ALONE, "adapter.kind": "none"}, "does not train the whole model"),
    ("minicpm-v", "4.51.3", {"model.path": "models/mine"}, "chat format"),
    ("minicpm-v", "4.51.3", {"data.train": "train.jsonl"}, "json.load"),
    ("minicpm-v", "4.51.3", {"schedule.evaluation_steps": 5}, "refuses to evaluate"),
    ("llama-cookbook", "0.0.5.post1", {"model.family": "qwen2"}, "llama and mllama"),
    ("llama-cookbook", "0.0.5.post1", {**SEES, "data.packing": True}, "does not pack"),
    (
        "llama-cookbook",
        "0.0.5.post1",
        {"precision.compute": "fp16", "adapter.kind": "none"},
        "GradScaler does not unscale",
    ),
    ("llama-cookbook", "0.0.5.post1", QUANTIZED, "over every device in sight"),
    ("llama-cookbook", "0.0.5.post1", {}, "one process, or its own FSDP"),
    ("llama-cookbook", "0.0.5.post1", SHARDED, "variables that torchrun sets"),
    ("llama-cookbook", "0.0.5.post1", {**SHARDED, "adapter.kind": "none"}, "in bf16, trains these"),
    ("llama-cookbook", "0.0.5.post1", {**SHARDED, "quantization.format": "int8"}, "8 bit"),
    (
        "llama-cookbook",
        "0.0.5.post1",
        {"quantization.format": "int8", "precision.compute": "fp16", "devices.capability": "6.1"},
        r"LLM.int8\(\) falls back",
    ),
    (
        "axolotl",
        "0.19.0",
        {
            "adapter.kind": "none",
            "adapter.frozen": ("embeddings",),
            "activation_checkpointing.mode": "layer",
            "activation_checkpointing.reentrant": True,
        },
        "partly frozen",
    ),
    ("axolotl", "0.17.0", {**REWARD, **ZERO_3}, "head that scores"),
    ("visualglm", "0.4.12", {}, "pictures on in fp32"),
    ("visualglm", "0.4.12", {"runtime.seed": 0}, "seed"),
    ("visualglm", "0.4.12", {"schedule.evaluation_steps": 5}, "evaluates nothing"),
]


def refused(name: str, version: str, changes: Mapping[str, object]) -> list[Diagnostic]:
    target = TARGETS[name]
    plan = plan_of({**target.requires, **changes})
    return [each for each in emit(target, plan, Version(version))[1] if each.id == "E0905"]


@pytest.mark.parametrize(("name", "version", "changes", "text"), REFUSED)
def test_what_the_script_does_not_run_is_refused(name, version, changes, text):
    faults = refused(name, version, changes)
    assert any(re.search(text, each.message) for each in faults), faults
    assert all(each.help and each.notes and each.labels for each in faults)


def test_vision_refusals_of_2024_do_not_hold_today():
    """The last state of zai-org/GLM-4 ships DeepSpeed for its vision script."""
    assert not any("DeepSpeed" in each.message for each in refused("glm4", "5.23.0", SEES))


def test_minicpm_adapters_bring_what_the_script_adds():
    """modules_to_save is written in the script: a plan without it is not what would run."""
    target = TARGETS["minicpm-v"]
    model = {"model.path": "openbmb/MiniCPM-V-2_6", "model.kind": "vision-language"}
    _, faults = emit(target, plan_of({**target.requires, **model}), Version("4.51.3"))
    assert "adapter.also_train" in lost_in(faults)


def test_a_script_of_one_s_own_is_not_started():
    for name in NAMES:
        target = TARGETS[name]
        plan = plan_of({**target.requires, "launch.script": "mine.py --fast"})
        _, faults = emit(target, plan, Version(target.latest))
        assert "launch.script" in lost_in(faults)


def test_the_shipped_command_lines_are_read():
    """A launch script as the repositories write it, with another order and another spelling."""
    target = TARGETS["minicpm-v"]
    text = "torchrun --nproc_per_node 2 finetune.py --bf16 true --output-dir out --use_lora=true\n"
    document = target.files[0].parse(text)
    found = {
        each.slot: each.value
        for each in read(target, {"finetune.sh": found_plain(document)}, Version("4.51.3"))
    }
    assert found["precision.compute"] == "bf16"
    assert found["runtime.output"] == "out"
    assert found["adapter.also_train"] == ("llm.model.embed_tokens", "resampler", "vpm")
    assert found["adapter.rank"] == 64


def test_a_rate_that_begins_with_a_hundred_idle_steps_is_no_schedule_of_ours():
    target = TARGETS["visualglm"]
    text = "deepspeed finetune_visualglm.py --mode finetune --warmup .02 --train-iters 300\n"
    document = found_plain(target.files[0].parse(text))
    slots = {
        each.slot for each in read(target, {target.files[0].name: document}, Version("0.4.12"))
    }
    assert "schedule.steps" in slots
    assert "schedule.kind" not in slots


HALF = {"precision.compute": "fp16", "states.weights": "fp16"}
WRITTEN_IN = [
    ("glm4", HALF, "states.weights"),
    ("glm4", {"attention.implementation": "flash_attention_2"}, "attention.implementation"),
    ("glm4", {"quantization.format": "nf4"}, "quantization.format"),
    ("minicpm-v", {"quantization.format": "nf4"}, "quantization.format"),
    (
        "minicpm-v",
        {"activation_checkpointing.reentrant": True},
        "activation_checkpointing.reentrant",
    ),
    ("llama-cookbook", {"optimizer.beta2": 0.95}, "optimizer.beta2"),
    ("llama-cookbook", {"precision.compute": "fp32"}, "precision.compute"),
    ("visualglm", {"adapter.alpha": 20.0}, "adapter.alpha"),
    ("visualglm", {"adapter.kind": "none"}, "adapter.kind"),
    ("visualglm", {"adapter.targets": ("dense",)}, "adapter.targets"),
]


@pytest.mark.parametrize(("name", "changes", "slot"), WRITTEN_IN)
def test_what_a_script_has_written_in_cannot_be_said_otherwise(name, changes, slot):
    target = TARGETS[name]
    plan = plan_of({**target.requires, **changes})
    assert slot in lost_in(emit(target, plan, Version(target.latest))[1])
