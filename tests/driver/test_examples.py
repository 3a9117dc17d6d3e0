"""The five systems: what is decided for each, fact by fact."""

import pytest
from planning import EXAMPLES, asked, codes, decided, errors, example, example_files

from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import load_spec
from tunec.compiler.ir.invariants import breaches
from tunec.targets.registry import REGISTRY

GIB = 2**30
INFEASIBLE = {
    "visualglm-6b-p100/spec.yaml": "E0701",
    "llama-3.2-3b-mixed-gpus/int8-all.yaml": "E0602",
    "glm-4v-9b-lora/fp16.yaml": "E0601",
    "simpletuner-flux-lora/fp16.yaml": "E0604",
    "qwen2.5-7b-grpo/split-groups.yaml": "E0805",
}
UNSAYABLE = {
    "llama-3.1-8b-dpo/other-trainer.yaml": "E0901",
    "qwen2.5-7b-reward/other-trainer.yaml": "E0901",
}
"""Planned, and refused by the target that is asked for."""


def plan_of(name):
    found = example(name)
    assert found.plan is not None, errors(found)
    return found.plan


def artifacts(name, target):
    """The values of the files that a target writes for an example, by file name."""
    loaded = load_spec(EXAMPLES / name, targets=REGISTRY.names())
    compiled = compile_spec(loaded, asked(loaded))
    assert compiled.ok, [each.message for each in compiled.diagnostics]
    return {each.name: each for each in compiled.artifacts[target]}


@pytest.mark.parametrize("name", example_files())
def test_an_example_plans_or_fails_as_it_is_meant_to(name):
    found = example(name)
    if name in INFEASIBLE:
        assert {each.id for each in found.diagnostics if each.severity == "error"} == {
            INFEASIBLE[name]
        }
        assert found.plan is None
        return
    assert found.ok, errors(found)
    assert not list(breaches(found.plan))
    assert found.memory.required_bytes <= found.plan.devices.budget
    assert found.memory.host.peak_bytes <= found.plan.devices.host_budget


@pytest.mark.parametrize("name", sorted(set(example_files()) - {*INFEASIBLE, *UNSAYABLE}))
def test_an_example_compiles_to_each_target_it_names(name):
    loaded = load_spec(EXAMPLES / name, targets=REGISTRY.names())
    wanted = asked(loaded) or (REGISTRY.resolve("huggingface"), REGISTRY.resolve("launch"))
    compiled = compile_spec(loaded, wanted)
    assert compiled.ok, [each.message for each in compiled.diagnostics]
    assert set(compiled.artifacts) == {target.name for target, _ in wanted}
    assert all(files for files in compiled.artifacts.values())


@pytest.mark.parametrize("name", sorted({*INFEASIBLE, *UNSAYABLE}))
def test_an_example_that_fails_writes_nothing(name):
    loaded = load_spec(EXAMPLES / name, targets=REGISTRY.names())
    compiled = compile_spec(loaded, asked(loaded))
    assert not compiled.artifacts
    wanted = (INFEASIBLE | UNSAYABLE)[name]
    assert wanted in {each.id for each in compiled.diagnostics if each.severity == "error"}


# ── VisualGLM-6B on a P100 ───────────────────────────────────────────────────────────────────────


def infeasible():
    found = example("visualglm-6b-p100/spec.yaml")
    return next(each for each in found.diagnostics if each.id == "E0701")


def test_visualglm_does_not_fit_a_p100_and_the_sum_says_why():
    told = infeasible()
    terms = {term.name: term.value for term in told.sum}
    # 7,802,193,408 parameters (the card), four bytes each in fp32
    assert terms["frozen weights"] == pytest.approx(4 * 7_802_193_408, rel=0.001)
    assert sum(terms.values()) > 31.2e9
    assert "frozen weights" in " ".join(told.notes)


def test_visualglm_on_a_p100_is_fp32_because_deepspeed_refuses_fp16():
    found = example("visualglm-6b-p100/spec.yaml")
    precision = found.ledger.winner("precision.compute")
    assert precision.value == "fp32"
    refused = {other.value: other.reason for other in precision.beat}
    assert "Type fp16 is not supported on your device" in refused["fp16"]
    assert "6.0" in refused["bf16"]


def test_visualglm_is_offered_repairs():
    told = infeasible()
    assert "qlora" in told.help
    assert "p100-pcie-16g-x" in told.help


def test_visualglm_qlora_with_the_deprecated_switch_fits_the_p100():
    found = example("visualglm-6b-p100/qlora-deprecated-fp16.yaml")
    made = found.plan
    assert made.precision.compute == "fp16"
    assert made.precision.loss_scaling == "dynamic"
    assert made.quantization.format == "nf4"
    assert ("DS_ALLOW_DEPRECATED_FP16", "1") in made.launch.environment
    assert found.memory.required_bytes < 15.9 * GIB


def test_the_launch_script_exports_the_deprecated_switch():
    script = artifacts("visualglm-6b-p100/qlora-deprecated-fp16.yaml", "launch")["launch.sh"]
    assert "export DS_ALLOW_DEPRECATED_FP16=1" in script.text


def test_visualglm_files_turn_fp16_on_exactly_where_it_was_chosen():
    with_fp16 = artifacts("visualglm-6b-p100/qlora-deprecated-fp16.yaml", "deepspeed")
    assert with_fp16["ds_config.json"].values["fp16"]["enabled"] is True
    in_fp32 = artifacts("visualglm-6b-p100/zero3-fp32-x4.yaml", "deepspeed")
    values = in_fp32["ds_config.json"].values
    assert not values.get("fp16", {}).get("enabled", False)
    assert not values.get("bf16", {}).get("enabled", False)


def test_visualglm_in_fp32_needs_the_base_sharded():
    made = plan_of("visualglm-6b-p100/zero3-fp32-x4.yaml")
    assert made.precision.compute == "fp32"
    assert made.zero.stage == 3
    assert (made.zero.offload_optimizer, made.zero.offload_param) == ("cpu", "cpu")
    assert ("DS_ALLOW_DEPRECATED_FP16", "1") not in made.launch.environment
    values = artifacts("visualglm-6b-p100/zero3-fp32-x4.yaml", "deepspeed")["ds_config.json"].values
    assert values["zero_optimization"]["offload_param"]["device"] == "cpu"
    assert values["zero_optimization"]["offload_optimizer"]["device"] == "cpu"


def test_visualglm_on_a_v100_is_fp16_without_any_switch():
    made = plan_of("visualglm-6b-p100/other-hardware.yaml")
    assert made.precision.compute == "fp16"
    assert made.devices.capability == "7.0"
    assert not made.launch.environment


# ── MiniCPM-V 2.6 ────────────────────────────────────────────────────────────────────────────────


def test_minicpm_trains_the_embedding_and_the_resampler_beside_lora():
    made = plan_of("minicpm-v-2_6-lora/spec.yaml")
    assert made.adapter.also_train == ("llm.model.embed_tokens", "resampler")
    embedding = 151_666 * 3584
    # rank 64 on q, k, v, o of 28 layers: outputs and inputs of each (Qwen2-7B: 4 kv heads of 128)
    sides = (3584 + 3584) + 2 * (3584 + 512) + (3584 + 3584)
    adapters = 28 * 64 * sides
    rest = made.adapter.trainable_parameters - embedding - adapters
    # the resampler: about 0.09B
    assert 0.05e9 < rest < 0.1e9


def test_minicpm_vision_tower_adds_its_parameters_when_asked():
    without = plan_of("minicpm-v-2_6-lora/spec.yaml").adapter.trainable_parameters
    whole = plan_of("minicpm-v-2_6-lora/vision.yaml").adapter.trainable_parameters
    assert whole - without == pytest.approx(0.4e9, rel=0.1)
    assert whole == pytest.approx(1.0e9, rel=0.1)


def test_minicpm_on_ampere_is_bf16_in_every_file():
    assert plan_of("minicpm-v-2_6-lora/spec.yaml").precision.compute == "bf16"
    files = artifacts("minicpm-v-2_6-lora/spec.yaml", "huggingface")
    arguments = files["training_args.yaml"].values
    assert arguments["bf16"] is True
    assert not arguments.get("fp16", False)
    own = artifacts("minicpm-v-2_6-lora/spec.yaml", "deepspeed")["ds_config.json"].values
    assert own["bf16"]["enabled"] is True
    assert not own.get("fp16", {}).get("enabled", False)


@pytest.mark.parametrize("name", ["v100", "t4"])
def test_minicpm_without_bf16_units_is_fp16_with_dynamic_scaling(name):
    found = example(f"minicpm-v-2_6-lora/{name}.yaml")
    made = found.plan
    assert made.precision.compute == "fp16"
    assert made.precision.loss_scaling == "dynamic"
    # fp32 copies of what is trained: the optimizer's own, or the weights themselves
    assert made.states.master_weights or made.states.trainable == "fp32"
    assert made.states.optimizer == "fp32"
    bf16 = next(o for o in found.ledger.winner("precision.compute").beat if o.value == "bf16")
    assert "no bf16 units" in bf16.reason
    values = artifacts(f"minicpm-v-2_6-lora/{name}.yaml", "deepspeed")["ds_config.json"].values
    assert values["fp16"]["enabled"] is True
    assert values["fp16"].get("loss_scale", 0) == 0
    assert not values.get("bf16", {}).get("enabled", False)
    arguments = artifacts(f"minicpm-v-2_6-lora/{name}.yaml", "huggingface")["training_args.yaml"]
    assert arguments.values["fp16"] is True
    assert not arguments.values.get("bf16", False)


def test_minicpm_warm_up_is_never_zero_steps():
    assert plan_of("minicpm-v-2_6-lora/spec.yaml").schedule.warmup_steps > 0


# ── a TITAN RTX beside a GTX 1080 Ti ─────────────────────────────────────────────────────────────


def test_only_the_titan_is_used_and_named_beyond_doubt():
    made = plan_of("llama-3.2-3b-mixed-gpus/spec.yaml")
    assert made.devices.model == "titan-rtx"
    assert made.parallel.world == 1
    environment = dict(made.launch.environment)
    assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert environment["CUDA_VISIBLE_DEVICES"] == "0"
    script = artifacts("llama-3.2-3b-mixed-gpus/spec.yaml", "launch")["launch.sh"].text
    order = script.index("CUDA_DEVICE_ORDER=PCI_BUS_ID")
    assert order < script.index("CUDA_VISIBLE_DEVICES=0")


def test_a_device_with_a_known_uuid_is_named_by_it():
    uuids = ["GPU-11111111-2222-3333-4444-555555555555", "GPU-66666666-7777-8888-9999-000000000000"]
    group = {"device": "titan-rtx", "uuids": uuids[:1]}
    other = {"device": "gtx-1080-ti", "uuids": uuids[1:]}
    host = {"memory": "64GiB", "cores": 8, "memory_bandwidth": 5.0e10}
    from planning import decided

    node = {"accelerators": [other, group], "host": host}
    made = decided(hardware={"name": "desk", "title": "a desk", "nodes": [node]})
    assert made.devices.model == "titan-rtx"
    assert dict(made.launch.environment)["CUDA_VISIBLE_DEVICES"] == uuids[0]


def test_turing_trains_in_fp16_with_fp32_adapters():
    made = plan_of("llama-3.2-3b-mixed-gpus/spec.yaml")
    assert made.precision.compute == "fp16"
    assert made.states.trainable == "fp32"


def test_int8_on_the_titan_alone_is_fine():
    made = plan_of("llama-3.2-3b-mixed-gpus/int8.yaml")
    assert made.quantization.format == "int8"
    assert made.devices.model == "titan-rtx"


def test_int8_on_both_is_refused_by_capability():
    (message,) = errors(example("llama-3.2-3b-mixed-gpus/int8-all.yaml"))
    assert "7.5" in message
    assert "GTX 1080 Ti has 6.1" in message


def test_both_devices_are_planned_for_the_weaker():
    made = plan_of("llama-3.2-3b-mixed-gpus/all.yaml")
    assert made.devices.model == "gtx-1080-ti"
    assert made.parallel.world == 2
    assert made.precision.compute == "fp32"
    assert made.devices.memory < 11 * GIB
    assert not made.devices.visible


# ── GLM-4V-9B ────────────────────────────────────────────────────────────────────────────────────


def test_glm4v_is_bf16_and_refuses_fp16_in_the_makers_words():
    assert plan_of("glm-4v-9b-lora/spec.yaml").precision.compute == "bf16"
    (message,) = errors(example("glm-4v-9b-lora/fp16.yaml"))
    assert "does not support float16" in message


@pytest.mark.parametrize("name", ["spec", "x8", "transformers-4.40", "all-query-key-value"])
def test_glm4v_counts_its_image_and_stays_in_its_budget(name):
    found = example(f"glm-4v-9b-lora/{name}.yaml")
    assert found.plan.data.image_tokens == 1602
    assert found.plan.data.vision_tokens == 6401
    assert found.plan.devices.budget == 72 * GIB
    assert found.memory.required_bytes <= 72 * GIB
    assert found.plan.batch.micro == 1
    assert found.plan.batch.evaluation == 1


def test_glm4v_adapts_the_language_model_only():
    made = plan_of("glm-4v-9b-lora/spec.yaml")
    # zai-org/GLM-4 issue 501 counts 6,397,952 with the tower's 63 layers: 40 x (4096 + 4608) x 8
    # of them are the language model's
    assert made.adapter.trainable_parameters == 40 * (4096 + 4608) * 8 == 2_785_280
    config = artifacts("glm-4v-9b-lora/spec.yaml", "huggingface")["adapter_config.json"].values
    assert config["target_modules"] == made.adapter.targets
    assert isinstance(config["target_modules"], str)


def test_glm4v_with_the_shipped_name_adapts_the_tower_and_says_so():
    found = example("glm-4v-9b-lora/all-query-key-value.yaml")
    assert found.plan.adapter.trainable_parameters == 6_397_952
    assert "lora-reaches-vision" in codes(found)
    # gradients through a tower of 6401 tokens and 63 layers: only with checkpointing
    assert found.plan.activation_checkpointing.mode == "layer"
    assert found.memory.terms["vision activations"] > 20 * GIB


def test_glm4v_without_adapters_in_the_tower_keeps_no_activations_there():
    found = example("glm-4v-9b-lora/spec.yaml")
    assert found.memory.terms.get("vision activations", 0) < GIB
    wide = example("glm-4v-9b-lora/all-query-key-value.yaml")
    assert found.memory.required_bytes < wide.memory.required_bytes
    assert found.time.step_seconds < wide.time.step_seconds


def test_glm4v_uses_all_eight_devices_when_there_are_eight():
    made = plan_of("glm-4v-9b-lora/x8.yaml")
    assert made.parallel.world == 8
    assert made.batch.global_ == 8
    assert made.launch.launcher in ("torchrun", "deepspeed")


def test_glm4v_in_two_dialects():
    old = artifacts("glm-4v-9b-lora/transformers-4.40.yaml", "huggingface")["training_args.yaml"]
    new = artifacts("glm-4v-9b-lora/spec.yaml", "huggingface")["training_args.yaml"]
    assert old.values["evaluation_strategy"] == new.values["eval_strategy"] == "steps"
    assert "eval_strategy" not in old.values
    assert "evaluation_strategy" not in new.values
    assert old.values["bf16"] is new.values["bf16"] is True
    assert new.values["per_device_eval_batch_size"] == 1


# ── SimpleTuner ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("case", ["simpletuner-flux-lora", "simpletuner-sdxl-lora"])
def test_simpletuner_is_bf16_from_weights_to_moments(case):
    made = plan_of(f"{case}/spec.yaml")
    assert made.precision.compute == "bf16"
    assert made.optimizer.name == "adamw_bf16"
    assert made.states.weights == made.states.trainable == made.states.gradients == "bf16"
    assert made.states.optimizer == "bf16"
    values = artifacts(f"{case}/spec.yaml", "simpletuner")["config/config.json"].values
    words = {key.lstrip("-"): value for key, value in values.items()}
    assert words["optimizer"] == "adamw_bf16"
    assert words["mixed_precision"] == "bf16"
    # a flag without effect (it is rewritten to `unmodified`), so never written as fp32
    assert words.get("gradient_precision", "unmodified") == "unmodified"
    assert not any("deepspeed" in key for key in words)


def test_simpletuner_optimizer_of_bf16_is_refused_with_fp16():
    (message,) = errors(example("simpletuner-flux-lora/fp16.yaml"))
    assert "adamw_bf16" in message
    assert "fp16" in message


def test_no_plan_can_hold_the_reporters_combination():
    """bf16 parameters with gradients kept in fp32: `states.gradients` is what adamw_bf16 makes."""
    from planning import planned

    found = planned(
        model="flux.1-dev",
        method={"lora": {"targets": "attention"}},
        data={"train": "images.json", "samples": 100, "resolution": 1024},
        hardware="a100-80g-x1",
        train={"optimizer": "adamw_bf16"},
        pin={"states.gradients": "fp32"},
        targets=["simpletuner"],
    )
    compiled = compile_spec(found.loaded, asked(found.loaded))
    assert not compiled.artifacts
    assert "states.gradients" in " ".join(each.message for each in compiled.diagnostics)


# ── five lines ───────────────────────────────────────────────────────────────────────────────────


def test_five_lines_are_enough():
    lines = (EXAMPLES / "five-lines/spec.yaml").read_text("utf-8").splitlines()
    assert len(lines) == 5
    made = plan_of("five-lines/spec.yaml")
    assert made.parallel.world == 8
    assert made.precision.compute == "bf16"


def test_a_default_is_not_said_to_be_in_the_spec():
    """The five lines give neither seed nor moments; MiniCPM's spec gives one of the moments."""
    five = example("five-lines/spec.yaml").ledger
    assert five.winner("runtime.seed").reason == "not given: the usual"
    assert five.winner("data.evaluation").reason == "not given"
    assert five.winner("objective.kind").reason == "supervised training: no objective is given"
    assert five.winner("data.samples").reason == "as the spec has it"
    own = example("minicpm-v-2_6-lora/spec.yaml").ledger
    assert own.winner("optimizer.beta2").reason == "as the spec has it"
    assert own.winner("optimizer.epsilon").reason == "not given: the usual"


@pytest.mark.parametrize("name", ["mi300x-x8", "gaudi3-x8"])
def test_tf32_is_switched_on_with_cuda_alone(name):
    """transformers `is_torch_tf32_available` is False where torch is built without CUDA."""
    found = decided(hardware=name)
    assert found.precision.compute == "bf16"
    assert not found.precision.tf32
    assert decided(hardware="h100-x8").precision.tf32
