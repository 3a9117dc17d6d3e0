"""What the real SimpleTuner does, at both known releases: what our table and checks rest on."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import jsonschema
import pytest

from tunec.compiler.consumers.environments import Environment, prepare
from tunec.compiler.consumers.queries import ask
from tunec.compiler.consumers.sets import choose
from tunec.targets.simpletuner import schema

VERSIONS = ("3.1.6", "4.10.1")
HOPPER = [9, 0]
BASE: Mapping[str, Any] = {
    "model_family": "flux",
    "model_type": "lora",
    "optimizer": "adamw_bf16",
    "output_dir": "out",
    "data_backend_config": "config/multidatabackend.json",
}
DEEPSPEED = {"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}}


def flags(**changes: Any) -> list[str]:
    settings = {**BASE, **changes}
    return [
        f"--{name}={json.dumps(value) if isinstance(value, dict) else value}"
        for name, value in settings.items()
    ]


def parsed(**changes: Any) -> dict[str, Any]:
    return {"verb": "resolve", "backend": "cmd", "argv": flags(**changes)}


def on_gpu(**changes: Any) -> dict[str, Any]:
    return {**parsed(**changes), "capability": HOPPER}


def from_json(**changes: Any) -> dict[str, Any]:
    text = json.dumps({**BASE, **changes})
    return {"verb": "resolve", "backend": "json", "files": {"config/config.json": text}}


def from_env(text: str) -> dict[str, Any]:
    base = (
        "MODEL_FAMILY=flux\nMODEL_TYPE=lora\nOPTIMIZER=adamw_bf16\nOUTPUT_DIR=out\n"
        "DATALOADER_CONFIG=config/multidatabackend.json\n"
    )
    return {"verb": "resolve", "backend": "env", "files": {"config/config.env": base + text}}


def launched(files: Mapping[str, str], *argv: str) -> dict[str, Any]:
    return {"verb": "launch", "files": files, "argv": list(argv)}


def one_step(parameter: str, gradient: str, **changes: Any) -> dict[str, Any]:
    return {
        "verb": "step",
        "backend": "cmd",
        "argv": flags(learning_rate=1e-3, **changes),
        "parameter": parameter,
        "gradient": gradient,
    }


def rates(steps: int, processes: int = 1, **changes: Any) -> dict[str, Any]:
    argv = flags(learning_rate=1.0, num_train_epochs=0, **changes)
    return {
        "verb": "schedule",
        "backend": "cmd",
        "argv": argv,
        "steps": steps,
        "processes": processes,
    }


def with_data(**changes: Any) -> dict[str, Any]:
    images = {
        "id": "images",
        "type": "local",
        "instance_data_dir": "photos",
        "caption_strategy": "textfile",
        "resolution": 512,
        "resolution_type": "pixel_area",
        **changes,
    }
    embeds = {"id": "text", "type": "local", "dataset_type": "text_embeds", "default": True}
    files = {"config/multidatabackend.json": json.dumps([images, embeds])}
    return {**parsed(), "files": files, "folders": ["photos"]}


QUESTIONS: Mapping[str, Mapping[str, Any]] = {
    "plain": parsed(),
    "defaults": {"verb": "defaults"},
    "families": {"verb": "families"},
    "schema": {"verb": "schema"},
    # the dtype that an optimizer needs
    "bf16 parameters": one_step("bfloat16", "bfloat16"),
    "bf16 parameters, fp32 gradients": one_step("bfloat16", "float32"),
    "fp32 parameters": one_step("float32", "float32"),
    "fp16 parameters": one_step("float16", "float16"),
    "fp32 parameters, torch-adamw": one_step("float32", "float32", optimizer="torch-adamw"),
    "adamw_bf16 replaced": {
        **one_step("bfloat16", "bfloat16", base_model_precision="int8-quanto"),
        "enable_adamw_bf16": False,
    },
    "adamw_bf16, fp16": parsed(mixed_precision="fp16"),
    "adamw_bf16, no": parsed(mixed_precision="no"),
    "gradient_precision": parsed(gradient_precision="fp32"),
    "adam_bfloat16": parsed(optimizer="adam_bfloat16"),
    "adafactor": parsed(optimizer="adafactor"),
    "adamw8bit": parsed(optimizer="adamw8bit"),
    "dadaptation": parsed(optimizer="dadaptation"),
    # settings of the optimizer
    "adam_ flags": one_step("bfloat16", "bfloat16", adam_weight_decay=0.3, adam_beta1=0.5),
    "optimizer_config": one_step(
        "bfloat16", "bfloat16", optimizer_config="weight_decay=0.05,eps=1e-07"
    ),
    "betas": one_step("bfloat16", "bfloat16", optimizer_beta1=0.8, optimizer_beta2=0.9),
    "betas and optimizer_config": one_step(
        "bfloat16",
        "bfloat16",
        optimizer_config="weight_decay=0.05",
        optimizer_beta1=0.8,
        optimizer_beta2=0.9,
    ),
    "one beta": parsed(optimizer_beta1=0.8),
    # learning rates
    "linear": rates(11, max_train_steps=10, lr_scheduler="linear", lr_warmup_steps=2),
    "linear on two": rates(11, 2, max_train_steps=10, lr_scheduler="linear", lr_warmup_steps=2),
    "constant": rates(4, max_train_steps=10, lr_scheduler="constant", lr_warmup_steps=2),
    "cosine over all": rates(
        11, max_train_steps=10, lr_scheduler="cosine", lr_warmup_steps=10, lr_end=0
    ),
    "cosine on two": rates(
        11, 2, max_train_steps=10, lr_scheduler="cosine", lr_warmup_steps=10, lr_end=0
    ),
    "cosine with warm-up": rates(
        9, max_train_steps=8, lr_scheduler="cosine", lr_warmup_steps=2, lr_end=0
    ),
    "sine without": rates(1, max_train_steps=8, lr_scheduler="sine"),
    # refusals
    "unknown flag": parsed(nope=1),
    "steps and epochs": parsed(max_train_steps=10),
    "steps, no epochs": parsed(max_train_steps=10, num_train_epochs=0),
    "half an epoch": parsed(num_train_epochs=1.5),
    "no accumulation": parsed(gradient_accumulation_steps=0),
    "largest image alone": parsed(maximum_image_size=1024),
    "metadata interval": parsed(metadata_update_interval=30),
    "fp8 without a GPU": parsed(mixed_precision="fp8"),
    "fp8 on quantised": on_gpu(mixed_precision="fp8", base_model_precision="int8-quanto"),
    "fp16 base dtype": parsed(base_model_default_dtype="fp16"),
    "full, quantised": parsed(model_type="full", base_model_precision="int8-quanto"),
    "full, quantised, insists": parsed(
        model_type="full", base_model_precision="int8-quanto", i_know_what_i_am_doing=True
    ),
    "lora, quantised": parsed(base_model_precision="int8-quanto"),
    "fsdp and deepspeed": parsed(fsdp_enable=True, deepspeed_config=DEEPSPEED),
    "fsdp2 and quanto": parsed(fsdp_enable=True, base_model_precision="int8-quanto"),
    "pipeline and manual": parsed(
        base_model_precision="uint4-sdnq", quantize_via="pipeline", model_family="flux"
    ),
    "nf4 and sage": on_gpu(base_model_precision="nf4-bnb", attention_mechanism="sageattention"),
    "ramtorch without a GPU": parsed(ramtorch=True),
    "ramtorch": on_gpu(ramtorch=True),
    "text_encoder_lr": parsed(text_encoder_lr=1e-5),
    # DeepSpeed
    "lora and deepspeed": parsed(deepspeed_config=DEEPSPEED),
    "full and deepspeed": parsed(
        model_type="full",
        deepspeed_config=DEEPSPEED,
        optimizer="optimi-lion",
        lr_scheduler="linear",
        lr_warmup_steps=7,
        train_batch_size=3,
        gradient_accumulation_steps=5,
        learning_rate=2e-5,
        adam_weight_decay=0.3,
    ),
    "deepspeed optimizer": parsed(
        model_type="full",
        deepspeed_config={**DEEPSPEED, "optimizer": {"type": "FusedAdam", "params": {"lr": 1e-3}}},
    ),
    "nvme": parsed(
        model_type="full",
        deepspeed_config={"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}},
    ),
    # files
    "json false": from_json(gradient_checkpointing=False),
    "json word false": from_json(gradient_checkpointing="false"),
    "json object": from_json(tread_config={"routes": []}),
    "json list": from_json(lr_scheduler=["linear", "constant"]),
    "json old names": from_json(checkpointing_steps=5, validation_steps=7, save_total_limit=3),
    "json warm-up": from_json(lr_scheduler="constant", lr_warmup_steps=10),
    "json cosine_with_warmup": from_json(lr_scheduler="cosine_with_warmup"),
    "env": from_env("LEARNING_RATE=1e-4\nTRAINER_EXTRA_ARGS='--lora_rank=8 --max_grad_norm=1.0'\n"),
    "env false": from_env("USE_GRADIENT_CHECKPOINTING=false\n"),
    "env extra false": from_env("TRAINER_EXTRA_ARGS='--gradient_checkpointing=false'\n"),
    "launch by json": launched(
        {"config/config.json": json.dumps({"num_processes": 4, "mixed_precision": "fp16"})}
    ),
    "launch by env": launched(
        {
            "config/config.json": "{}",
            "config/config.env": (
                "MIXED_PRECISION=fp16\nTRAINING_NUM_PROCESSES=8\nTRAINING_NUM_MACHINES=2\n"
                "ACCELERATE_EXTRA_ARGS='--machine_rank=1'\n"
            ),
        }
    ),
    "launch by flag": launched({"config/config.json": "{}"}, "--num_processes=4", "--seed=1"),
    # data
    "data": with_data(),
    "data without folder": {**with_data(), "folders": []},
    "data, wrong crop": with_data(crop_aspect="round"),
    "data, parquet": with_data(caption_strategy="parquet"),
    "report to two": from_json(report_to="tensorboard,wandb"),
    "report to a list": from_json(report_to=["tensorboard", "wandb"]),
    "report to mlflow": from_json(report_to="mlflow"),
    "old family": from_json(model_family="z-image"),
    "new family": from_json(model_family="z_image"),
}


@cache
def environment(version: str) -> Environment:
    return prepare(choose("simpletuner", version).requirements)


@cache
def answers(version: str) -> Mapping[str, Any]:
    """Every question in one process: importing SimpleTuner takes most of the time."""
    found = ask(environment(version), schema.CONSUMER, list(QUESTIONS.values()), schema.SECONDS)
    return dict(zip(QUESTIONS, found, strict=True))


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def answer(version: str) -> Mapping[str, Any]:
    return answers(version)


def error(answer: Mapping[str, Any], name: str) -> tuple[str, str]:
    found = answer[name]["error"]
    return found["stage"], found["message"]


def accepted(answer: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    assert "error" not in answer[name], answer[name]["error"]
    arguments: Mapping[str, Any] = answer[name]["arguments"]
    return arguments


# ── dtypes and optimizers ────────────────────────────────────────────────────────────────────────


def test_adamw_bf16_asks_the_parameter_not_the_gradient(answer):
    for name in ("fp32 parameters", "fp16 parameters"):
        assert error(answer, name) == ("step", "only bfloat 16 is supported.")
    for name in ("bf16 parameters", "bf16 parameters, fp32 gradients"):
        assert answer[name]["class"] == "AdamWBF16"
    assert answer["fp32 parameters, torch-adamw"]["class"] == "AdamW"


def test_parser_accepts_adamw_bf16_without_bf16(answer):
    assert accepted(answer, "adamw_bf16, fp16")["weight_dtype"] == "float16"
    assert accepted(answer, "adamw_bf16, no")["weight_dtype"] == "float32"
    assert accepted(answer, "plain")["weight_dtype"] == "bfloat16"


def test_gradient_precision_is_rewritten(answer):
    assert accepted(answer, "gradient_precision")["gradient_precision"] == "unmodified"
    assert accepted(answer, "plain")["gradient_precision"] is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("adam_bfloat16", "Optimizer adam_bfloat16 not found"),
        ("adafactor", "removed in favour of optimi-stableadamw"),
        ("adamw8bit", "removed in favour of optimi-adamw"),
        ("dadaptation", "has been removed"),
    ],
)
def test_removed_optimizers_are_refused(answer, name, words):
    stage, message = error(answer, name)
    assert stage == "parse"
    assert words in message


def test_adamw_bf16_is_replaced_over_an_fp32_base(answer):
    assert answer["adamw_bf16 replaced"]["class"] == "AdamW"
    assert any("AdamWBF16 may not be used" in line for line in answer["adamw_bf16 replaced"]["log"])


def test_adam_flags_do_not_reach_the_optimizer(answer):
    assert answer["adam_ flags"]["settings"] == answer["bf16 parameters"]["settings"]
    settings = answer["optimizer_config"]["settings"]
    assert (settings["weight_decay"], settings["eps"]) == (0.05, 1e-7)
    assert answer["betas"]["settings"]["betas"] == [0.8, 0.9]


def test_betas_beside_optimizer_config(answer, version):
    kept = [0.9, 0.999] if version == "3.1.6" else [0.8, 0.9]
    settings = answer["betas and optimizer_config"]["settings"]
    assert settings["betas"] == kept
    assert settings["weight_decay"] == 0.05


# ── learning rates ───────────────────────────────────────────────────────────────────────────────


def test_linear_warms_up_and_decays_over_the_updates(answer):
    falling = [1 - step / 8 for step in range(9)]
    assert answer["linear"]["rates"] == pytest.approx([0, 0.5, *falling])
    assert answer["linear on two"]["rates"] == answer["linear"]["rates"]


def test_cosine_takes_warmup_steps_for_half_its_period(answer):
    over_all = answer["cosine over all"]["rates"]
    assert over_all[0] == 1.0
    assert over_all[5] == pytest.approx(0.5, abs=1e-6)
    assert over_all[10] == pytest.approx(0, abs=1e-6)
    assert answer["cosine on two"]["rates"] == pytest.approx(over_all, abs=1e-6)
    expected = [1, 0.5, 0, 0.5, 1, 0.5, 0, 0.5, 1]
    assert answer["cosine with warm-up"]["rates"] == pytest.approx(expected, abs=1e-6)
    assert error(answer, "sine without")[0] == "schedule"


def test_constant_with_warmup_steps(answer, version):
    warmed = [1.0] * 4 if version == "3.1.6" else [0.0, 0.5, 1.0, 1.0]
    assert answer["constant"]["rates"] == warmed
    kind = "constant" if version == "3.1.6" else "constant_with_warmup"
    assert accepted(answer, "json warm-up")["lr_scheduler"] == kind


def test_cosine_with_warmup_is_an_old_name(answer, version):
    if version == "3.1.6":
        assert "invalid choice" in error(answer, "json cosine_with_warmup")[1]
    else:
        assert accepted(answer, "json cosine_with_warmup")["lr_scheduler"] == "cosine"


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "stage", "words"),
    [
        ("unknown flag", "parse", "unrecognized arguments: --nope=1"),
        ("steps and epochs", "parse", "you must set --num_train_epochs"),
        ("half an epoch", "parse", "invalid int value: '1.5'"),
        ("one beta", "parse", "should be provided"),
        ("no accumulation", "parse", "gradient_accumulation_steps parameter: 0"),
        ("largest image alone", "parse", "target_downsample_size"),
        ("metadata interval", "parse", "at least 60 seconds"),
        ("fp8 without a GPU", "parse", "without a CUDA device"),
        ("fp8 on quantised", "parse", "quantized base model"),
        ("fp16 base dtype", "parse", "invalid choice: 'fp16'"),
        ("full, quantised", "safety", "full tuning is not compatible with quantisation"),
        ("fsdp and deepspeed", "parse", "Cannot enable FSDP"),
        ("lora and deepspeed", "safety", "LoRA can not be trained with DeepSpeed"),
        ("ramtorch without a GPU", "parse", "requires a CUDA or ROCm device"),
        ("text_encoder_lr", "parse", "invalid int value: '1e-05'"),
        ("nvme", "deepspeed", "nvme_path"),
        ("data, wrong crop", "data", "crop_aspect must be one of"),
        ("data, parquet", "data", "caption_strategy=parquet"),
        ("report to mlflow", "parse", "mlflow"),
    ],
)
def test_refused(answer, name, stage, words):
    found = error(answer, name)
    assert found[0] == stage
    assert words in found[1]


def test_accepted_variants(answer):
    assert accepted(answer, "steps, no epochs")["max_train_steps"] == 10
    assert accepted(answer, "lora, quantised")["is_quantized"] is True
    assert accepted(answer, "ramtorch")["set_grads_to_none"] is True
    assert accepted(answer, "full, quantised, insists")["is_quantized"] is False


def test_fsdp2_with_quanto(answer, version):
    if version == "3.1.6":
        assert accepted(answer, "fsdp2 and quanto")["fsdp_version"] == 2
    else:
        assert "Quanto kernels" in error(answer, "fsdp2 and quanto")[1]


def test_pipeline_quantisation_takes_its_own_presets_only(answer, version):
    stage, message = error(answer, "pipeline and manual")
    assert stage == "parse"
    wanted = "invalid choice" if version == "3.1.6" else "quantize_via=pipeline cannot be combined"
    assert wanted in message


def test_nf4_with_sageattention(answer, version):
    stage, message = error(answer, "nf4 and sage")
    if version == "3.1.6":
        assert (stage, "not supported with SageAttention" in message) == ("safety", True)
    else:
        assert (stage, "SageAttention is not installed" in message) == ("parse", True)


# ── DeepSpeed ────────────────────────────────────────────────────────────────────────────────────


def test_deepspeed_takes_its_own_optimizer_and_schedule(answer):
    accepted(answer, "full and deepspeed")
    config = answer["full and deepspeed"]["deepspeed"]
    assert config["train_micro_batch_size_per_gpu"] == 3
    assert config["gradient_accumulation_steps"] == 5
    optimizer = config["optimizer"]
    assert (optimizer["type"], optimizer["params"]["weight_decay"]) == ("AdamW", 0.3)
    warmup = {"warmup_min_lr": 0, "warmup_max_lr": 2e-5, "warmup_num_steps": 7}
    assert config["scheduler"] == {"type": "WarmupLR", "params": warmup}


def test_deepspeed_optimizer_by_another_name_is_replaced(answer):
    optimizer = answer["deepspeed optimizer"]["deepspeed"]["optimizer"]
    assert optimizer == {"type": "AdamW", "params": {"lr": 1e-3}}


# ── files ────────────────────────────────────────────────────────────────────────────────────────


def test_json_drops_what_it_cannot_say(answer, version):
    assert accepted(answer, "json false")["gradient_checkpointing"] is False
    assert accepted(answer, "json word false")["gradient_checkpointing"] is True
    assert accepted(answer, "json list")["lr_scheduler"] == "constant"
    kept = None if version == "3.1.6" else {"routes": []}
    assert accepted(answer, "json object")["tread_config"] == kept


def test_json_old_names(answer):
    arguments = accepted(answer, "json old names")
    assert arguments["checkpoint_step_interval"] == 5
    assert arguments["validation_step_interval"] == 7
    assert arguments["checkpoints_total_limit"] == 3


def test_env_drops_false(answer):
    arguments = accepted(answer, "env")
    assert (arguments["learning_rate"], arguments["lora_rank"]) == (1e-4, 8)
    assert accepted(answer, "env false")["gradient_checkpointing"] is True
    assert accepted(answer, "env extra false")["gradient_checkpointing"] is False


def test_launcher_reads_the_environment_and_not_the_json(answer):
    by_json = answer["launch by json"]["command"]
    assert by_json[:4] == ["accelerate", "launch", "--mixed_precision=bf16", "--num_processes=1"]
    by_env = answer["launch by env"]["command"]
    assert by_env[2:5] == ["--mixed_precision=fp16", "--num_processes=8", "--num_machines=2"]
    assert "--machine_rank=1" in by_env
    by_flag = answer["launch by flag"]["command"]
    assert "--num_processes=4" in by_flag
    assert by_flag[-1] == "--seed=1"


def test_trackers(answer, version):
    single = version == "3.1.6"
    if single:
        assert error(answer, "report to two")[0] == "parse"
    else:
        assert accepted(answer, "report to two")["report_to"] == ["tensorboard", "wandb"]
    listed = "wandb" if single else ["tensorboard", "wandb"]
    assert accepted(answer, "report to a list")["report_to"] == listed


def test_families_are_renamed(answer, version):
    old, new = ("old family", "new family") if version == "3.1.6" else ("new family", "old family")
    accepted(answer, old)
    assert "invalid choice" in error(answer, new)[1]


# ── data ─────────────────────────────────────────────────────────────────────────────────────────


def test_data_backends(answer, version):
    accepted(answer, "data")
    data = answer["data"]["data"]
    assert data["rules"] == []
    images = data["backends"][0]
    assert images["config"]["resolution_type"] == "area"
    assert images["config"]["resolution"] == pytest.approx(512 * 512 / 1e6)
    if version == "3.1.6":
        accepted(answer, "data without folder")
    else:
        assert error(answer, "data without folder")[0] == "data"


# ── the schema ───────────────────────────────────────────────────────────────────────────────────


def test_kept_schema_is_what_the_release_says(answer, version):
    kept = schema.path(version).read_text(encoding="utf-8")
    assert json.loads(kept) == schema.document(answer["schema"])
    jsonschema.Draft202012Validator.check_schema(json.loads(kept))


def test_flag_counts_and_required(answer, version):
    found = answer["schema"]["flags"]
    assert len(found) == {"3.1.6": 344, "4.10.1": 569}[version]
    required = {name for name, flag in found.items() if flag["required"]}
    assert required == set(BASE)
    assert set(answer["defaults"]) == set(found)


def test_defaults_that_moved(answer, version):
    found = answer["defaults"]
    assert (
        found["attention_mechanism"] == {"3.1.6": "diffusers", "4.10.1": "kohaku-fa-auto"}[version]
    )
    assert found["grad_clip_method"] == "value"
    assert found["num_train_epochs"] == 1


def shipped(version: str) -> list[tuple[str, str]]:
    """The example configurations that the release itself ships."""
    root = next(environment(version).root.glob("lib/python*/site-packages/simpletuner/examples"))
    found = sorted(root.glob("*/config.json"))
    return [(path.parent.name, path.read_text(encoding="utf-8")) for path in found]


def test_schema_agrees_with_the_parser_on_the_shipped_examples(version):
    """What the parser takes without loss the schema takes; a value that it drops it refuses."""
    kept = json.loads(schema.path(version).read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(kept)
    readable = [(name, text) for name, text in shipped(version) if _is_json(text)]
    questions = [
        {
            "verb": "resolve",
            "backend": "json",
            "capability": HOPPER,
            "files": {"config/config.json": text},
        }
        for _, text in readable
    ]
    found = ask(environment(version), schema.CONSUMER, questions, schema.SECONDS)
    taken = 0
    for (name, text), answer in zip(readable, found, strict=True):
        document = {key.lstrip("-"): value for key, value in json.loads(text).items()}
        faults = [fault.instance for fault in validator.iter_errors(document)]
        if "parsed" in answer:
            taken += 1
            assert all(isinstance(value, dict | list) for value in faults), (name, faults)
        elif "invalid choice" in answer["error"]["message"]:
            assert faults, (name, answer["error"])
    assert taken == {"3.1.6": 29, "4.10.1": 145}[version]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return False
    return True


# ── what makes fp16 impossible ───────────────────────────────────────────────────────────────────


def test_fp16_parameters_cannot_be_unscaled():
    """accelerate scales the loss with fp16, and SimpleTuner's parameters are fp16 then."""
    torch = pytest.importorskip("torch")
    parameter = torch.nn.Parameter(torch.ones(4, dtype=torch.float16))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(parameter.sum()).backward()
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.unscale_(optimizer)
