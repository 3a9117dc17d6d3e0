"""What nine transformers releases, and the peft and trl beside them, really do with our files."""

import json
from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest

from tunec.compiler.consumers import schemas
from tunec.compiler.consumers.environments import prepare
from tunec.compiler.consumers.queries import ask
from tunec.compiler.consumers.sets import choose, releases
from tunec.targets.generate_schemas import FOLDER, SCRIPTS, huggingface_documents, text

SETS = releases("transformers")
VERSIONS = tuple(known.version for known in SETS)
MAJOR_4 = tuple(version for version in VERSIONS if version.startswith("4."))
MAJOR_5 = tuple(version for version in VERSIONS if version.startswith("5."))

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 100,
}
RANK = 8
AUTO = "auto"
DS_CONFIG: Mapping[str, Any] = {
    "train_batch_size": AUTO,
    "train_micro_batch_size_per_gpu": AUTO,
    "gradient_accumulation_steps": AUTO,
    "gradient_clipping": AUTO,
    "zero_optimization": {
        "stage": 3,
        "reduce_bucket_size": AUTO,
        "stage3_prefetch_bucket_size": AUTO,
        "stage3_param_persistence_threshold": AUTO,
    },
    "bf16": {"enabled": AUTO},
    "fp16": {"enabled": AUTO},
    "optimizer": {"type": "AdamW", "params": {"lr": AUTO, "weight_decay": AUTO}},
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": {"total_num_steps": AUTO, "warmup_num_steps": AUTO},
    },
}
WITH_DEEPSPEED = """
output_dir: out
bf16: true
learning_rate: 0.001
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
deepspeed: ds/config.json
"""


def parse(yaml: str, **more: Any) -> dict[str, Any]:
    return {"verb": "resolve", "yaml": f"output_dir: out\n{yaml}", **more}


def flags(*argv: str) -> dict[str, Any]:
    return {"verb": "resolve", "argv": ["--output_dir", "out", *argv]}


def beside(ds_config: Mapping[str, Any], yaml: str = WITH_DEEPSPEED) -> dict[str, Any]:
    files = {"ds/config.json": json.dumps(ds_config)}
    run = {"world_size": 8, "model_config": LLAMA, "max_steps": 50}
    return {"verb": "resolve", "yaml": yaml, "files": files, **run}


def adapt(**lora: Any) -> dict[str, Any]:
    wanted = {"r": RANK, "task_type": "CAUSAL_LM", **lora}
    return {"verb": "adapt", "model_config": LLAMA, "dtype": "bfloat16", "lora": wanted}


QUESTIONS: Mapping[str, dict[str, Any]] = {
    "plain": parse("learning_rate: 0.0005\nwarmup_steps: 10"),
    "both precisions": parse("bf16: true\nfp16: true"),
    "both evaluations": parse("bf16_full_eval: true\nfp16_full_eval: true"),
    "bf16 on 7.0 emulated": parse("bf16: true", capability=[7, 0]),
    "bf16 on 7.0 bare": parse("bf16: true", capability=[7, 0], emulates_bf16=False),
    "bf16 on 8.0": parse("bf16: true", capability=[8, 0], emulates_bf16=False),
    "fp16 on 6.0": parse("fp16: true", capability=[6, 0]),
    "tf32 on 7.0": parse("tf32: true", capability=[7, 0]),
    "tf32 on 8.0": parse("tf32: true", capability=[8, 0]),
    "rate without a point": parse("learning_rate: 5e-4"),
    "bare no": parse("save_strategy: no"),
    "quoted no": parse('save_strategy: "no"'),
    "unknown key": parse("per_device_batch_size: 1"),
    "unknown flag": flags("--batch_size", "1"),
    "evaluation_strategy": parse("evaluation_strategy: epoch"),
    "eval_strategy": parse("eval_strategy: epoch"),
    "warmup_ratio": parse("warmup_ratio: 0.1", max_steps=50),
    "warmup as a fraction": parse("warmup_steps: 0.1", max_steps=50),
    "logging_dir": flags("--logging_dir", "logs"),
    "save_safetensors": parse("save_safetensors: true"),
    "overwrite_output_dir": parse("overwrite_output_dir: true"),
    "group_by_length": parse("group_by_length: true"),
    "checkpointing": parse("gradient_checkpointing: true"),
    "adamw_hf": parse("optim: adamw_hf"),
    "eight processes": parse("per_device_train_batch_size: 2", world_size=8),
    "sequence to sequence": parse(
        "predict_with_generate: true", **{"class": "Seq2SeqTrainingArguments"}
    ),
    "sft": parse("packing: true", **{"class": "SFTConfig"}),
    "deepspeed": beside(DS_CONFIG),
    "deepspeed that differs": beside({**DS_CONFIG, "gradient_accumulation_steps": 2}),
    "deepspeed without a precision": beside(DS_CONFIG, WITH_DEEPSPEED.replace("bf16: true", "")),
    "deepspeed with two precisions": beside(
        DS_CONFIG, WITH_DEEPSPEED.replace("bf16: true", "fp16: true\nbf16_full_eval: true")
    ),
    "deepspeed without zero": beside({"train_batch_size": AUTO}),
    "deepspeed fp16 without its block": beside(
        {"train_batch_size": AUTO, "bf16": {"enabled": AUTO}, "zero_optimization": {"stage": 2}},
        WITH_DEEPSPEED.replace("bf16: true", "fp16: true"),
    ),
    "lora": adapt(target_modules=["q_proj", "v_proj"]),
    "lora on all linear": adapt(target_modules="all-linear"),
    "lora by regex": adapt(target_modules=r".*layers\.[01]\.self_attn\.q_proj"),
    "lora and embedding": adapt(target_modules=["q_proj"], modules_to_save=["embed_tokens"]),
    "lora on nothing": adapt(target_modules=["query_key_value"]),
    "four bits": {"verb": "quantize", "arguments": {"load_in_4bit": True}},
    "four and eight bits": {
        "verb": "quantize",
        "arguments": {"load_in_4bit": True, "load_in_8bit": True},
    },
    "linear": {"verb": "rates", "schedule": "linear", "learning_rate": 1.0, "steps": 4},
    "warmed up": {
        "verb": "rates",
        "schedule": "constant_with_warmup",
        "learning_rate": 1.0,
        "warmup_steps": 2,
        "steps": 4,
    },
    "schedule of no name": {
        "verb": "rates",
        "schedule": "cosinus",
        "learning_rate": 1.0,
        "steps": 4,
    },
}


def test_the_files_we_ship_are_what_the_releases_say(told):
    for path, content in huggingface_documents(list(told.values())).items():
        assert (FOLDER / path).read_text(encoding="utf-8") == text(content), path


@pytest.mark.parametrize("version", VERSIONS)
class TestEveryRelease:
    def test_is_the_one_asked_for(self, version, answer):
        assert answer(version, "plain")["version"] == version

    def test_reads_plain_values(self, version, answer, value):
        assert value(version, "plain", "learning_rate") == 0.0005
        assert answer(version, "plain")["derived"]["warmup_steps"] == 10

    def test_refuses_both_precisions(self, version, refusal):
        message = "At most one of fp16 and bf16 can be True"
        assert message in refusal(version, "both precisions")
        assert message in refusal(version, "both evaluations")

    def test_notices_bf16_only_where_torch_does(self, version, refusal):
        assert refusal(version, "bf16 on 7.0 emulated") is None
        assert "doesn't support bf16/gpu" in refusal(version, "bf16 on 7.0 bare")
        assert refusal(version, "bf16 on 8.0") is None

    def test_does_not_mind_fp16_on_an_old_device(self, version, refusal):
        assert refusal(version, "fp16 on 6.0") is None

    def test_wants_ampere_for_tf32(self, version, refusal):
        assert "requires Ampere" in refusal(version, "tf32 on 7.0")
        assert refusal(version, "tf32 on 8.0") is None

    def test_takes_a_rate_without_a_point_as_text(self, version, value):
        assert value(version, "rate without a point", "learning_rate") == "5e-4"

    def test_refuses_a_bare_no(self, version, refusal, value):
        assert "False is not a valid" in refusal(version, "bare no")
        assert value(version, "quoted no", "save_strategy") == "no"

    def test_refuses_unknown_keys_and_flags(self, version, refusal):
        assert "per_device_batch_size" in refusal(version, "unknown key")
        assert "--batch_size" in refusal(version, "unknown flag")

    def test_counts_processes(self, version, answer):
        found = answer(version, "eight processes")["derived"]
        assert (found["world_size"], found["train_batch_size"]) == (8, 2)

    def test_knows_sequence_to_sequence(self, version, value):
        assert value(version, "sequence to sequence", "predict_with_generate") is True

    def test_fills_in_auto(self, version, answer):
        found = answer(version, "deepspeed")["deepspeed"]
        assert found["train_batch_size"] == 2 * 4 * 8
        assert found["bf16"] == {"enabled": True}
        assert found["fp16"] == {"enabled": False}
        assert found["optimizer"]["params"] == {"lr": 0.001, "weight_decay": 0.0}
        assert found["scheduler"]["params"]["total_num_steps"] == 50
        zero = found["zero_optimization"]
        assert zero["reduce_bucket_size"] == 64 * 64
        assert zero["stage3_param_persistence_threshold"] == 10 * 64

    def test_refuses_a_ds_config_that_differs(self, version, refusal):
        message = refusal(version, "deepspeed that differs")
        assert "ds gradient_accumulation_steps=2 vs hf gradient_accumulation_steps=4" in message

    def test_leaves_precision_off_when_nobody_names_one(self, version, answer):
        found = answer(version, "deepspeed without a precision")["deepspeed"]
        assert found["bf16"] == found["fp16"] == {"enabled": False}

    def test_turns_both_precisions_on_from_training_and_evaluation(self, version, answer):
        found = answer(version, "deepspeed with two precisions")["deepspeed"]
        assert found["bf16"] == found["fp16"] == {"enabled": True}

    def test_wants_a_block_for_zero(self, version, refusal):
        message = refusal(version, "deepspeed without zero")
        assert "specify the ZeRO optimization config" in message

    def test_does_not_add_a_block_for_fp16(self, version, answer):
        found = answer(version, "deepspeed fp16 without its block")["deepspeed"]
        assert "fp16" not in found
        assert found["bf16"] == {"enabled": False}

    def test_counts_adapter_parameters(self, version, answer):
        found = answer(version, "lora")
        assert found["trainable_parameters"] == 2 * 4 * RANK * (64 + 64)
        assert found["modules"] == {
            "model.layers.*.self_attn.q_proj": 4,
            "model.layers.*.self_attn.v_proj": 4,
        }
        assert found["trained_in_full"] == []

    def test_counts_every_linear_layer(self, version, answer):
        found = answer(version, "lora on all linear")
        attention, mlp = 4 * (64 + 64), 3 * (64 + 128)
        assert found["trainable_parameters"] == 4 * RANK * (attention + mlp)
        assert "lm_head" not in found["modules"]

    def test_follows_a_pattern(self, version, answer):
        found = answer(version, "lora by regex")
        assert found["modules"] == {"model.layers.*.self_attn.q_proj": 2}

    def test_trains_saved_modules_in_full(self, version, answer):
        found = answer(version, "lora and embedding")
        assert found["trained_in_full"] == ["model.embed_tokens.modules_to_save.default.weight"]
        assert found["trainable_parameters"] == 4 * RANK * (64 + 64) + 100 * 64

    def test_refuses_modules_that_are_not_there(self, version, refusal):
        message = refusal(version, "lora on nothing")
        assert message.startswith("adapter: Target modules {'query_key_value'} not found")

    def test_reads_quantisation(self, version, value, refusal):
        assert value(version, "four bits", "bnb_4bit_quant_type") == "fp4"
        assert "only one can be used" in refusal(version, "four and eight bits")

    def test_schedules(self, version, answer, refusal):
        assert answer(version, "linear")["rates"] == [1.0, 0.75, 0.5, 0.25]
        assert answer(version, "warmed up")["rates"] == [0.0, 0.5, 1.0, 1.0]
        assert "cosinus" in refusal(version, "schedule of no name")

    def test_its_schema_agrees_with_it(self, version):
        schema = schemas.class_schema("training_arguments", version)
        plain = {"output_dir": "out", "learning_rate": 0.0005, "save_strategy": "no", "bf16": True}
        jsonschema.validate(plain, schema)
        for wrong in ({"learning_rate": "5e-4"}, {"save_strategy": False}, {"batch_size": 1}):
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate({**plain, **wrong}, schema)


SINCE_5_15 = ("5.15.1", "5.23.0")


class TestDrift:
    @pytest.mark.parametrize(
        ("name", "taken"),
        [
            ("evaluation_strategy", ("4.40.2", "4.44.2", "4.46.3")),
            ("eval_strategy", tuple(version for version in VERSIONS if version != "4.40.2")),
            ("warmup_ratio", tuple(version for version in VERSIONS if version not in SINCE_5_15)),
            ("logging_dir", tuple(version for version in VERSIONS if version not in SINCE_5_15)),
            ("save_safetensors", MAJOR_4),
            ("overwrite_output_dir", MAJOR_4),
            ("group_by_length", (*MAJOR_4, "5.0.0")),
            ("adamw_hf", ("4.40.2", "4.44.2", "4.46.3")),
            ("sft", tuple(version for version in VERSIONS if version != "4.40.2")),
        ],
    )
    def test_what_takes_it(self, name, taken, refusal):
        assert tuple(version for version in VERSIONS if refusal(version, name) is None) == taken

    @pytest.mark.parametrize("version", [v for v in VERSIONS if v not in SINCE_5_15])
    def test_warmup_ratio_counts_in_steps(self, version, answer):
        found = answer(version, "warmup_ratio")["derived"]["warmup_steps"]
        assert found == 5

    @pytest.mark.parametrize("version", MAJOR_5)
    def test_warmup_below_one_is_a_fraction(self, version, answer):
        assert answer(version, "warmup as a fraction")["derived"]["warmup_steps"] == 5

    def test_warmup_below_one_was_taken_as_it_stood_then_refused(self, answer, refusal):
        assert answer("4.40.2", "warmup as a fraction")["derived"]["warmup_steps"] == 0.1
        for version in MAJOR_4[1:]:
            assert "must be of type int" in refusal(version, "warmup as a fraction")

    def test_checkpointing_has_a_new_name(self, answer):
        assert not answer("5.15.1", "checkpointing")["warnings"]
        newest = answer("5.23.0", "checkpointing")
        assert newest["values"]["activation_checkpointing"] is True
        assert "`activation_checkpointing`" in newest["warnings"][0]

    @pytest.mark.parametrize(
        ("version", "steps"), [*((v, 0) for v in VERSIONS if v != "5.23.0"), ("5.23.0", 1)]
    )
    def test_warmup_of_nothing(self, version, steps, answer):
        params = answer(version, "deepspeed")["deepspeed"]["scheduler"]["params"]
        assert params["warmup_num_steps"] == steps

    def test_the_prefetch_bucket_was_once_a_fraction(self, answer):
        def bucket(version: str) -> Any:
            zero = answer(version, "deepspeed")["deepspeed"]["zero_optimization"]
            return zero["stage3_prefetch_bucket_size"]

        exact = 0.9 * 64 * 64
        assert [bucket(version) for version in ("4.40.2", "4.44.2")] == [exact, exact]
        assert {bucket(version) for version in VERSIONS[2:]} == {int(exact)}

    def test_that_fraction_is_refused_by_deepspeed(self, answer):
        """The file of transformers 4.44.2, handed on to the DeepSpeed that it would run with."""
        config = answer("4.44.2", "deepspeed")["deepspeed"]
        known = choose("deepspeed", "0.15")
        asked = {"verb": "resolve", "config": config, "world_size": 8}
        [found] = ask(prepare(known.requirements), SCRIPTS["deepspeed"], [asked])
        assert "stage3_prefetch_bucket_size" in found["refused"]["message"]

    def test_adapters_are_widened_since_peft_0_12(self, answer):
        assert answer("4.40.2", "lora")["adapter_dtypes"] == ["bfloat16"]
        for version in VERSIONS[1:]:
            assert answer(version, "lora")["adapter_dtypes"] == ["float32"]
            assert answer(version, "lora and embedding")["adapter_dtypes"] == [
                "bfloat16",
                "float32",
            ]

    def test_the_optimizer_left_out(self):
        def optim(version: str) -> Any:
            return schemas.class_defaults("training_arguments", version)["optim"]

        assert [optim(version) for version in ("4.51", "4.57")] == [
            "adamw_torch",
            "adamw_torch_fused",
        ]

    @pytest.mark.parametrize("version", VERSIONS)
    def test_amp_may_be_auto_in_major_4_only(self, version):
        assert ("amp.enabled" in schemas.automatic_keys(version)) == (version in MAJOR_4)


def test_between_known_releases_nothing_is_claimed():
    with pytest.raises(LookupError, match=r"release 4\.42\.4 is not known"):
        schemas.class_schema("training_arguments", "4.42.4")


def test_keys_of_auto_hold_between_known_releases():
    assert schemas.automatic_keys("4.42.4") == schemas.automatic_keys("4.40.2")
    with pytest.raises(LookupError):
        schemas.automatic_keys("4.39.3")
