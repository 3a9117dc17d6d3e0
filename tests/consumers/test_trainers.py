"""What the trainers' own classes and parsers, at their pinned commits, make of our files."""

import shlex
from collections.abc import Mapping
from typing import Any

import pytest
from packaging.version import Version
from tests.plans import plan_of

from tunec.compiler.consumers.environments import EnvironmentUnavailable, prepare
from tunec.compiler.consumers.queries import ask
from tunec.compiler.consumers.sets import choose
from tunec.compiler.emit import emit
from tunec.targets.glm4 import schema as glm4_schema
from tunec.targets.glm4.versions import commit
from tunec.targets.llama_cookbook import schema as cookbook_schema
from tunec.targets.minicpm_v import schema as minicpm_schema
from tunec.targets.minicpm_v.versions import commit as minicpm_commit
from tunec.targets.registry import TARGETS
from tunec.targets.scripts.sources import Source, blob, obtain
from tunec.targets.visualglm import schema as visualglm_schema

RUAMEL = "ruamel.yaml==0.18.6"


def source(wanted: Source) -> str:
    return str(obtain(wanted))


def environment(*requirements: str):
    return prepare(requirements)


def files_of(name: str, plan, version: str) -> dict[str, Any]:
    artifacts, faults = emit(TARGETS[name], plan, Version(version))
    assert [each for each in faults if each.severity == "error"] == []
    return {each.name: each for each in artifacts}


def test_a_source_is_what_was_pinned_or_nothing(tmp_path):
    kept = tmp_path / f"{blob(b'x = 1')}.py"
    kept.write_bytes(b"x = 1")
    pinned = Source("nobody/nothing", "0" * 40, "x.py", kept.stem)
    assert obtain(pinned, cache=tmp_path) == kept
    kept.write_bytes(b"x = 2")
    with pytest.raises(EnvironmentUnavailable, match="nobody/nothing@0000000"):
        obtain(pinned, cache=tmp_path)


# ── glm4 ─────────────────────────────────────────────────────────────────────────────────────────

GLM_4V: Mapping[str, Any] = {
    "model.path": "THUDM/glm-4v-9b",
    "model.family": "chatglm",
    "model.kind": "vision-language",
    "model.trust_remote_code": True,
    "data.images": 1,
    "data.evaluation": "dev.jsonl",
    "evaluation.predictions": "answers",
    "evaluation.prompt": 1024,
    "evaluation.completion": 1024,
    "evaluation.kept_batches": 1,
    "schedule.evaluation_steps": 500,
    "adapter.targets": r"transformer\.encoder\.layers\.\d+\.self_attention\.query_key_value",
    "parallel.engine": "none",
    "parallel.world": 1,
    "parallel.data": 1,
    "batch.global": 8,
    "zero.stage": 0,
    "states.trainable": "fp32",
    "states.gradients": "fp32",
    "states.master_weights": False,
    "states.autocast": True,
    "launch.launcher": "python",
}
GLM_4: Mapping[str, Any] = {
    "model.path": "THUDM/GLM-4-9B-0414",
    "model.family": "glm4",
    "adapter.targets": ("k_proj", "q_proj", "v_proj"),
}
GLM_RUNS = [
    pytest.param("4.40.2", GLM_4V, id="seed"),
    pytest.param("4.44.2", GLM_4V, id="2024-09"),
    pytest.param("5.23.0", GLM_4V, id="today"),
    pytest.param("5.23.0", GLM_4, id="today-deepspeed"),
]


def asked_of_glm4(version: str, files: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    short = commit(TARGETS["glm4"].dialect(Version(version)))[:7]
    question = {
        "verb": "resolve",
        "source": source(glm4_schema.SOURCES[short]),
        "files": {name: getattr(each, "text", each) for name, each in files.items()},
        **more,
    }
    held = environment(*choose("transformers", version).requirements, RUAMEL)
    (answer,) = ask(held, "tunec.targets.glm4.consumer", [question])
    return answer


@pytest.mark.parametrize(("version", "changes"), GLM_RUNS)
def test_glm4_resolves_what_the_plan_says(version, changes):
    plan = plan_of(changes)
    files = files_of("glm4", plan, version)
    world = plan.parallel.world
    answer = asked_of_glm4(version, files, world_size=world, capability=[8, 0])
    assert answer["refused"] is None
    values, training = answer["values"], answer["values"]["training_args"]
    assert values["max_input_length"] + values["max_output_length"] == plan.data.sequence
    assert values["data_config"]["train_file"] == plan.data.train
    assert values["peft_config"]["r"] == plan.adapter.rank
    assert training["bf16"] is True
    assert training["per_device_train_batch_size"] == plan.batch.micro
    assert training["per_device_eval_batch_size"] == plan.batch.evaluation
    assert training["learning_rate"] == plan.optimizer.learning_rate
    assert training["predict_with_generate"] is True
    assert values["generation_config"]["max_new_tokens"] == values["max_output_length"]
    if plan.parallel.engine == "deepspeed":
        assert answer["deepspeed"]["bf16"]["enabled"] is True


def test_glm4_of_2024_refuses_today_s_file():
    """The published advice: transformers 4.40.2 with the current YAML."""
    files = files_of("glm4", plan_of(GLM_4V), "5.23.0")
    answer = asked_of_glm4("4.40.2", files, capability=[8, 0])
    assert answer["refused"]["type"] == "TypeError"


def test_glm4_takes_no_file_without_a_generation_config():
    text = files_of("glm4", plan_of(GLM_4V), "5.23.0")["finetune.yaml"].text
    bare = text.replace("  generation_config:\n    max_new_tokens: 1024\n", "")
    assert bare != text
    answer = asked_of_glm4("5.23.0", {"finetune.yaml": bare}, capability=[8, 0])
    assert answer["refused"]["type"] == "TypeError"


@pytest.mark.real
def test_schemas_of_scripts_are_what_the_scripts_say():
    from tunec.targets.generate_script_schemas import main

    status = main(["--check"])
    if status == 2:
        pytest.skip("not checked: a script cannot be had")
    assert status == 0


# ── minicpm-v ────────────────────────────────────────────────────────────────────────────────────

MINICPM: Mapping[str, Any] = {
    "model.path": "openbmb/MiniCPM-V-2_6",
    "model.family": "minicpmv",
    "model.kind": "vision-language",
    "model.trust_remote_code": True,
    "data.train": "train.json",
    "adapter.targets": r"llm\..*layers\.\d+\.self_attn\.(q_proj|v_proj)",
    "adapter.also_train": ("llm.model.embed_tokens", "resampler"),
}
MINICPM_FP16: Mapping[str, Any] = {
    **MINICPM,
    "precision.compute": "fp16",
    "precision.loss_scaling": "dynamic",
    "quantization.compute": "fp16",
    **{f"states.{name}": "fp16" for name in ("weights", "trainable", "gradients")},
}
MINICPM_FULL: Mapping[str, Any] = {
    **MINICPM,
    "adapter.kind": "none",
    "adapter.also_train": (),
    "adapter.frozen": ("vision",),
    "adapter.targets": (),
}


def argv_of(artifact) -> list[str]:
    """The words after the script, as the shell gives them: the program's own reading is asked."""
    words = shlex.split(artifact.text.replace("\\\n", " "), comments=True)
    start = words.index(artifact.values["script"][0])
    return [word for word in words[start + 1 :] if word != "$@"]


def asked_of_minicpm(version: str, files: Mapping[str, Any], argv: list[str]) -> dict[str, Any]:
    short = minicpm_commit(TARGETS["minicpm-v"].dialect(Version(version)))[:7]
    question = {
        "verb": "resolve",
        "source": source(minicpm_schema.SOURCES[short]),
        "files": {name: each.text for name, each in files.items()},
        "argv": argv,
        "world_size": 8,
        "capability": [8, 0],
    }
    held = environment(*choose("transformers", version).requirements)
    (answer,) = ask(held, "tunec.targets.minicpm_v.consumer", [question])
    return answer


@pytest.mark.parametrize("version", ["4.40.2", "4.44.2", "4.51.3"])
@pytest.mark.parametrize("changes", [MINICPM, MINICPM_FP16, MINICPM_FULL])
def test_minicpm_resolves_what_the_plan_says(version, changes):
    plan = plan_of(changes)
    files = files_of("minicpm-v", plan, version)
    answer = asked_of_minicpm(version, files, argv_of(files["finetune.sh"]))
    assert answer["refused"] is None
    values, compute = answer["values"], plan.precision.compute
    assert values["use_lora"] is (plan.adapter.kind == "lora")
    assert not (values["use_lora"] and values["tune_llm"])
    assert values["tune_vision"] is False
    assert (values["bf16"], values["fp16"]) == (compute == "bf16", compute == "fp16")
    assert values["model_max_length"] == plan.data.sequence
    assert values["llm_type"] == "qwen"
    assert values["per_device_train_batch_size"] == plan.batch.micro
    assert values["report_to"] == []
    assert answer["deepspeed"]["fp16"]["enabled"] is (compute == "fp16")
    assert answer["deepspeed"]["train_batch_size"] == plan.batch.global_


def test_minicpm_s_own_script_does_not_parse_on_its_own_pin():
    """finetune_lora.sh says --evaluation_strategy, which transformers 4.51 no longer knows."""
    files = files_of("minicpm-v", plan_of(MINICPM), "4.51.3")
    argv = [*argv_of(files["finetune.sh"]), "--evaluation_strategy", "steps"]
    assert asked_of_minicpm("4.51.3", files, argv)["refused"]["type"] == "ValueError"


# ── llama-cookbook ───────────────────────────────────────────────────────────────────────────────

COOKBOOK: Mapping[str, Any] = {
    **TARGETS["llama-cookbook"].requires,
    "parallel.engine": "none",
    "activation_checkpointing.mode": "none",
    "model.path": "meta-llama/Llama-3.2-3B",
    "data.train": "samsum",
    "adapter.targets": ("q_proj", "v_proj"),
    "parallel.world": 1,
    "parallel.data": 1,
    "batch.global": 8,
    "zero.stage": 0,
    "optimizer.beta2": 0.999,
    "precision.compute": "fp16",
    "precision.loss_scaling": "dynamic",
    "states.weights": "fp16",
    "states.autocast": True,
    "devices.per_node": 1,
    "launch.launcher": "python",
}
COOKBOOK_8BIT: Mapping[str, Any] = {**COOKBOOK, "quantization.format": "int8"}
COOKBOOK_4BIT: Mapping[str, Any] = {
    **COOKBOOK,
    "quantization.format": "nf4",
    "quantization.compute": "fp16",
    "quantization.double": True,
}


def asked_of_cookbook(*argvs: list[str]) -> list[Any]:
    held = environment(*cookbook_schema.REQUIREMENTS)
    questions = [{"verb": "resolve", "argv": argv} for argv in argvs]
    return ask(held, cookbook_schema.CONSUMER, questions)


def test_cookbook_resolves_what_the_plan_says():
    by_steps = {**COOKBOOK, "schedule.epochs": None}
    runs = [plan_of(each) for each in (COOKBOOK, by_steps, COOKBOOK_8BIT, COOKBOOK_4BIT)]
    files = [files_of("llama-cookbook", plan, "0.0.5.post1")["finetuning.sh"] for plan in runs]
    for plan, answer in zip(runs, asked_of_cookbook(*map(argv_of, files)), strict=True):
        assert answer["refused"] is None
        assert "unknown parameter" not in answer["said"], answer["said"]
        train = answer["train"]
        assert train["use_fp16"] is True
        assert train["batch_size_training"] == plan.batch.micro
        assert train["lr"] == plan.optimizer.learning_rate
        batches = plan.schedule.steps * plan.batch.accumulation
        length = (batches, batches) if plan.schedule.epochs is None else (3, 0)
        assert (train["num_epochs"], train["max_train_step"]) == length
        assert answer["peft"]["r"] == plan.adapter.rank
        assert sorted(answer["peft"]["target_modules"]) == ["q_proj", "v_proj"]
        assert answer["peft"]["lora_dropout"] == plan.adapter.dropout
        bits = answer["quantization"]
        assert (bits is None) is (plan.quantization.format == "none")
        if plan.quantization.format == "nf4":
            assert bits["bnb_4bit_quant_type"] == "nf4"
            assert bits["bnb_4bit_compute_dtype"] == "float16"
            assert bits["bnb_4bit_use_double_quant"] is True
            assert bits["bnb_4bit_quant_storage"] == "uint8"
        if plan.quantization.format == "int8":
            assert bits["load_in_8bit"] is True


def test_cookbook_only_prints_of_a_key_that_it_does_not_know():
    """A misspelt key is a warning there; here it is a fault of our schema."""
    argv = argv_of(files_of("llama-cookbook", plan_of(COOKBOOK), "0.0.5.post1")["finetuning.sh"])
    (answer,) = asked_of_cookbook([*argv, "--batch_size", "2"])
    assert answer["refused"] is None
    assert "unknown parameter batch_size" in answer["said"]


def test_cookbook_refuses_the_quantisation_of_its_own_documentation():
    argv = argv_of(files_of("llama-cookbook", plan_of(COOKBOOK), "0.0.5.post1")["finetuning.sh"])
    (answer,) = asked_of_cookbook([*argv, "--quantization", "int4"])
    assert answer["refused"]["type"] == "ValueError"


# ── visualglm ────────────────────────────────────────────────────────────────────────────────────

VISUALGLM: Mapping[str, Any] = {
    **TARGETS["visualglm"].requires,
    "schedule.kind": "constant_with_warmup",
    "model.path": "THUDM/visualglm-6b",
    "model.family": "visualglm",
    "model.kind": "vision-language",
    "data.train": "dataset.json",
    "data.images": 1,
    "data.image_width": 224,
    "data.image_height": 224,
    "data.sequence": 320,
    "adapter.alpha": 1.0,
    "adapter.dropout": 0.0,
    "adapter.targets": r"transformer\.layers\.\d+\.attention\.(query_key_value|dense)",
    "precision.compute": "fp32",
    "quantization.compute": "fp32",
    **{f"states.{name}": "fp32" for name in ("weights", "trainable", "gradients")},
    "states.master_weights": False,
}
VISUALGLM_FP16: Mapping[str, Any] = {
    **VISUALGLM,
    "precision.compute": "fp16",
    "precision.loss_scaling": "dynamic",
    **{f"states.{name}": "fp16" for name in ("weights", "trainable", "gradients")},
    "states.master_weights": True,
}


def asked_of_visualglm(*runs: tuple[list[str], Mapping[str, Any]]) -> list[Any]:
    held = environment(*visualglm_schema.REQUIREMENTS)
    scripts = [source(each) for each in visualglm_schema.SOURCES]
    questions = [
        {
            "verb": "resolve",
            "scripts": scripts,
            "argv": argv,
            "files": {name: each.text for name, each in files.items()},
            "world_size": 8,
        }
        for argv, files in runs
    ]
    return ask(held, visualglm_schema.CONSUMER, questions)


def test_visualglm_resolves_what_the_plan_says():
    """fp32 with ZeRO, which no flags can say: without the file --zero-stage turns fp16 on."""
    known = [plan_of(VISUALGLM), plan_of(VISUALGLM_FP16)]
    files = [files_of("visualglm", plan, "0.4.12") for plan in known]
    runs = [(argv_of(each["finetune_visualglm.sh"]), each) for each in files]
    bare = [word for word in runs[0][0] if word not in ("--deepspeed_config", "ds_config.json")]
    *answers, without_file = asked_of_visualglm(*runs, ([*bare, "--zero-stage", "2"], files[0]))
    for plan, answer in zip(known, answers, strict=True):
        assert answer["refused"] is None
        values = answer["values"]
        assert values["fp16"] is (plan.precision.compute == "fp16")
        assert values["bf16"] is False
        assert values["batch_size"] == plan.batch.micro
        assert values["gradient_accumulation_steps"] == plan.batch.accumulation
        assert values["lr"] == plan.optimizer.learning_rate
        assert values["train_iters"] == plan.schedule.steps
        assert values["warmup"] * values["train_iters"] == plan.schedule.warmup_steps
        assert values["max_source_length"] + values["max_target_length"] == plan.data.sequence
        assert values["lora_rank"] == plan.adapter.rank
        assert (values["use_lora"], values["use_qlora"]) == (True, False)
        assert values["deepspeed_config"]["zero_optimization"]["stage"] == plan.zero.stage
        assert "scheduler" not in values["deepspeed_config"]
    assert without_file["values"]["fp16"] is True


def test_visualglm_has_no_flag_for_the_published_advice():
    """'Go to fp32, train_batch_size 1': argparse knows neither."""
    files = files_of("visualglm", plan_of(VISUALGLM), "0.4.12")
    argv = argv_of(files["finetune_visualglm.sh"])
    advice = (["--fp32"], ["--train_batch_size", "1"])
    for answer in asked_of_visualglm(*(([*argv, *each], files) for each in advice)):
        assert answer["refused"]["type"] == "SystemExit"
