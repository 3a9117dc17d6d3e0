"""What six DeepSpeed releases really do with a ds_config: the facts that our table rests on."""

from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest

from tunec.compiler.consumers import schemas
from tunec.compiler.consumers.sets import releases
from tunec.targets.generate_schemas import FOLDER, deepspeed_documents, text

SETS = releases("deepspeed")
VERSIONS = tuple(known.version for known in SETS)
UP_TO_0_16 = ("0.14.5", "0.15.4", "0.16.9")
SINCE_0_17 = ("0.17.6", "0.18.9", "0.19.8")
ADAMW = {"type": "AdamW", "params": {"lr": 1e-3}}


def ask(config: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    content = {"train_micro_batch_size_per_gpu": 2, **config}
    return {"verb": "resolve", "config": content, "world_size": 8, **more}


def zero(stage: int, **more: Any) -> dict[str, Any]:
    return {"zero_optimization": {"stage": stage, **more}}


def warmup(steps: int) -> dict[str, Any]:
    params = {"warmup_num_steps": steps, "warmup_max_lr": 1e-3}
    return {"optimizer": ADAMW, "scheduler": {"type": "WarmupLR", "params": params}}


FP16 = {"fp16": {"enabled": True}}
BF16 = {"bf16": {"enabled": True}}
CPU = {"device": "cpu"}

QUESTIONS: Mapping[str, dict[str, Any]] = {
    "both precisions": ask({**FP16, **BF16}),
    "batch by parts": ask({"gradient_accumulation_steps": 4}),
    "batch that does not multiply": ask({"train_batch_size": 15, "gradient_accumulation_steps": 1}),
    "no batch at all": {"verb": "resolve", "config": {}, "world_size": 8},
    "unknown at the top": ask({"zero_optimisation": {"stage": 2}}),
    "unknown in zero": ask(zero(2, stgae=3)),
    "unknown in fp16": ask({"fp16": {"enabled": True, "loss_sclae": 0}}),
    "unknown in checkpointing": ask({"activation_checkpointing": {"partition": True}}),
    "parameters offloaded at stage 2": ask(zero(2, offload_param=CPU)),
    "offload beside zero": ask({**zero(2), "offload_optimizer": CPU}),
    "legacy offload": ask(zero(2, cpu_offload=True)),
    "auto in bf16": ask({"bf16": {"enabled": "auto"}}),
    "auto in fp16": ask({"fp16": {"enabled": "auto"}}),
    "fractional least scale": ask({"fp16": {"enabled": False, "min_loss_scale": 0.01}}),
    "amp": ask({"amp": {"enabled": False}}),
    "nebula": ask({"nebula": {"enabled": False}}),
    "elasticity": ask({"elasticity": {"enabled": False}}),
    "curriculum": ask({"curriculum_learning": {"enabled": False}}),
    "sparse gradients": ask({"sparse_gradients": False}),
    "mics": ask(zero(3, mics_shard_size=8)),
    "fp16 on 6.0": ask(FP16, capability=[6, 0]),
    "fp16 on 6.0 allowed": ask(
        FP16, capability=[6, 0], environment={"DS_ALLOW_DEPRECATED_FP16": "1"}
    ),
    "fp16 on 7.0": ask(FP16, capability=[7, 0]),
    "bf16 on 7.0 emulated": ask(BF16, capability=[7, 0]),
    "bf16 on 7.0 bare": ask(BF16, capability=[7, 0], emulates_bf16=False),
    "offload with a client optimizer": ask(
        zero(2, offload_optimizer=CPU), client_optimizer="AdamW"
    ),
    "offload with a client optimizer, allowed": ask(
        {**zero(2, offload_optimizer=CPU), "zero_force_ds_cpu_optimizer": False},
        client_optimizer="AdamW",
    ),
    "untested optimizer": ask({**zero(2), **BF16}, client_optimizer="SGD"),
    "untested optimizer, allowed": ask(
        {**zero(2), **BF16, "zero_allow_untested_optimizer": True}, client_optimizer="SGD"
    ),
    "bf16 without zero": ask({**BF16, "optimizer": ADAMW}),
    "fp32 gradients in bf16 without zero": ask(
        {**BF16, "optimizer": ADAMW, "data_types": {"grad_accum_dtype": "fp32"}}
    ),
    "bf16 gradients in bf16 without zero": ask(
        {**BF16, "optimizer": ADAMW, "data_types": {"grad_accum_dtype": "bf16"}}
    ),
    "optimizer of no name": ask({"optimizer": {"type": "AdmaW", "params": {"lr": 1e-3}}}),
    "optimizer parameter of no name": ask({"optimizer": {"type": "AdamW", "params": {"learn": 1}}}),
    "clipping in the optimizer": ask(
        {"optimizer": {"type": "AdamW", "params": {"max_grad_norm": 1.0}}}
    ),
    "optimizer on the device": ask({**zero(2), **BF16, "optimizer": ADAMW}),
    "optimizer on the host": ask({**zero(2, offload_optimizer=CPU), **BF16, "optimizer": ADAMW}),
    "no warmup": ask(warmup(0), steps=3),
    "warmup": ask(warmup(3), steps=5),
    "schedule parameter of no name": ask(
        {"optimizer": ADAMW, "scheduler": {"type": "WarmupLR", "params": {"warmup": 1}}}
    ),
    "ratio of offload below 1 at stage 2": ask(zero(2, offload_optimizer={**CPU, "ratio": 0.5})),
    "master weights in bf16 without zero": ask(
        {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True}}
    ),
    "parameter dtype that differs": ask({**BF16, "data_types": {"param_dtype": "fp32"}}),
    "pickled": ask({**zero(3, stage3_max_live_parameters=1e8), "steps_per_print": 50}),
}


def test_the_files_we_ship_are_what_the_releases_say(told):
    for path, content in deepspeed_documents(list(told.values())).items():
        assert (FOLDER / path).read_text(encoding="utf-8") == text(content), path


@pytest.mark.parametrize("version", VERSIONS)
class TestEveryRelease:
    def test_refuses_both_precisions(self, version, refusal):
        assert "cannot be simultaneously enabled" in refusal(version, "both precisions")

    def test_multiplies_the_batch(self, version, value):
        assert value(version, "batch by parts", "train_batch_size") == 2 * 4 * 8

    def test_refuses_a_batch_that_does_not_multiply(self, version, refusal):
        message = refusal(version, "batch that does not multiply")
        assert "15 != 2 * 1 * 8" in message

    def test_wants_a_batch(self, version, refusal):
        assert "needs to be provided" in refusal(version, "no batch at all")

    def test_ignores_an_unknown_key_at_the_top(self, version, answer, value):
        assert value(version, "unknown at the top", "zero_optimization.stage") == 0
        assert answer(version, "unknown at the top")["ignored"] == ["zero_optimisation"]

    def test_refuses_an_unknown_key_in_zero(self, version, refusal):
        assert "stgae" in refusal(version, "unknown in zero")

    def test_ignores_an_unknown_key_of_checkpointing(self, version, answer):
        found = answer(version, "unknown in checkpointing")
        assert found["refused"] is None
        assert found["ignored"] == ["activation_checkpointing.partition"]

    def test_takes_parameter_offload_at_stage_2(self, version, value):
        where = "parameters offloaded at stage 2"
        assert value(version, where, "zero_optimization.offload_param.device") == "cpu"
        assert value(version, where, "zero_optimization.stage") == 2

    def test_ignores_offload_beside_zero(self, version, answer, value):
        assert value(version, "offload beside zero", "zero_optimization.offload_optimizer") is None
        assert answer(version, "offload beside zero")["ignored"] == ["offload_optimizer"]

    def test_moves_legacy_offload(self, version, value):
        where = "zero_optimization.offload_optimizer.device"
        assert value(version, "legacy offload", where) == "cpu"

    def test_refuses_fp16_below_7(self, version, refusal, answer):
        assert refusal(version, "fp16 on 6.0").startswith("sanity: Type fp16 is not supported")
        assert refusal(version, "fp16 on 6.0 allowed") is None
        assert answer(version, "fp16 on 7.0")["engine"]["model_dtype"] == "float16"

    def test_does_not_notice_emulated_bf16(self, version, refusal):
        assert refusal(version, "bf16 on 7.0 emulated") is None

    def test_refuses_a_client_optimizer_under_offload(self, version, refusal):
        message = refusal(version, "offload with a client optimizer")
        assert "zero_force_ds_cpu_optimizer" in message
        assert refusal(version, "offload with a client optimizer, allowed") is None

    def test_refuses_an_untested_optimizer(self, version, refusal):
        assert "zero_allow_untested_optimizer" in refusal(version, "untested optimizer")
        assert refusal(version, "untested optimizer, allowed") is None

    def test_refuses_names_it_does_not_know(self, version, refusal):
        message = refusal(version, "optimizer of no name")
        assert message == "sanity: AdmaW is not a supported DeepSpeed Optimizer"
        assert "'learn'" in refusal(version, "optimizer parameter of no name")
        assert "'warmup'" in refusal(version, "schedule parameter of no name")

    def test_refuses_clipping_in_the_optimizer(self, version, refusal):
        assert "gradient_clipping" in refusal(version, "clipping in the optimizer")

    def test_builds_another_adam_under_offload(self, version, answer):
        assert answer(version, "optimizer on the device")["engine"]["optimizer"] == "FusedAdam"
        host = answer(version, "optimizer on the host")["engine"]
        assert (host["optimizer"], host["wrapper"]) == ("DeepSpeedCPUAdam", "zero")

    def test_takes_a_whole_number_written_as_a_float(self, version, value):
        live = value(version, "pickled", "zero_optimization.stage3_max_live_parameters")
        assert live == 100_000_000
        assert value(version, "pickled", "steps_per_print") == 50

    def test_its_schema_agrees_with_it(self, version):
        schema = schemas.ds_config_schema(version)
        for name in ("both precisions", "batch by parts", "legacy offload", "pickled", "warmup"):
            jsonschema.validate(QUESTIONS[name]["config"], schema)
        for name in ("unknown at the top", "unknown in zero", "offload beside zero"):
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(QUESTIONS[name]["config"], schema)


class TestDrift:
    @pytest.mark.parametrize(
        ("key", "before", "after", "since"),
        [
            ("gradient_clipping", 0.0, 1.0, "0.19"),
            ("bf16.check_grad_overflow", False, True, "0.19"),
            ("steps_per_print", 10, None, "0.15"),
            ("bf16.immediate_grad_update", True, False, "0.17"),
        ],
    )
    def test_defaults_that_moved(self, key, before, after, since, told):
        minors = [".".join(version.split(".")[:2]) for version in VERSIONS]
        at = minors.index(since)
        assert schemas.ds_config_defaults(minors[at])[key] == after
        assert schemas.ds_config_defaults(minors[at - 1])[key] == before
        assert told[VERSIONS[at]].answers["defaults"][key] == after

    def test_offload_pins_memory_by_default_since_0_19(self):
        def pinned(version: str) -> Any:
            properties = schemas.ds_config_schema(version)["properties"]["zero_optimization"]
            block = properties["properties"]["offload_optimizer"]["anyOf"][0]
            return block["properties"]["pin_memory"]["default"]

        assert [pinned(version) for version in ("0.18", "0.19")] == [False, True]

    @pytest.mark.parametrize("version", UP_TO_0_16)
    def test_unknown_keys_in_fp16_were_ignored(self, version, answer):
        found = answer(version, "unknown in fp16")
        assert found["refused"] is None
        assert found["ignored"] == ["fp16.loss_sclae"]

    @pytest.mark.parametrize("version", SINCE_0_17)
    def test_unknown_keys_in_fp16_are_refused(self, version, refusal):
        assert "loss_sclae" in refusal(version, "unknown in fp16")

    @pytest.mark.parametrize("version", UP_TO_0_16)
    def test_auto_was_true(self, version, value):
        assert value(version, "auto in fp16", "fp16.enabled") == "auto"

    @pytest.mark.parametrize("version", SINCE_0_17)
    def test_auto_is_false(self, version, value):
        assert value(version, "auto in fp16", "fp16.enabled") is False
        assert value(version, "auto in bf16", "bf16.enabled") is False

    @pytest.mark.parametrize("version", SINCE_0_17)
    def test_a_fractional_least_scale_is_refused_even_with_fp16_off(self, version, refusal):
        assert "min_loss_scale" in refusal(version, "fractional least scale")

    @pytest.mark.parametrize("version", UP_TO_0_16)
    def test_a_fractional_least_scale_was_taken(self, version, refusal):
        assert refusal(version, "fractional least scale") is None

    @pytest.mark.parametrize(
        "name", ["amp", "nebula", "elasticity", "curriculum", "sparse gradients", "mics"]
    )
    def test_removed_keys_are_refused_in_0_19_only(self, name, refusal):
        assert "has been removed" in refusal("0.19.8", name)
        assert refusal("0.18.9", name) is None

    @pytest.mark.parametrize("version", SINCE_0_17)
    def test_bf16_without_emulation_is_refused(self, version, refusal):
        message = "sanity: Type bf16 is not supported on your device."
        assert refusal(version, "bf16 on 7.0 bare") == message

    def test_bf16_was_not_checked_at_all(self, refusal):
        assert refusal("0.14.5", "bf16 on 7.0 bare") is None

    @pytest.mark.parametrize("version", UP_TO_0_16)
    def test_bf16_without_zero_accumulated_in_fp32_and_nothing_else(self, version, answer, refusal):
        engine = answer(version, "bf16 without zero")["engine"]
        assert (engine["gradient_accumulation_dtype"], engine["wrapper"]) == ("float32", "bf16")
        message = refusal(version, "bf16 gradients in bf16 without zero")
        assert "must use a gradient accumulation type of fp32" in message

    @pytest.mark.parametrize("version", SINCE_0_17)
    def test_bf16_without_zero_accumulates_in_bf16(self, version, answer):
        engine = answer(version, "bf16 without zero")["engine"]
        found = (engine["gradient_accumulation_dtype"], engine["wrapper"])
        assert found == ("bfloat16", "ddp_bf16")

    @pytest.mark.parametrize("version", ["0.18.9", "0.19.8"])
    def test_bf16_without_zero_cannot_accumulate_in_fp32_since_0_18(self, version, refusal):
        assert "unsupported mix" in refusal(version, "fp32 gradients in bf16 without zero")

    def test_no_warmup_is_refused_since_0_19(self, answer, refusal):
        assert "must be a positive integer, got 0" in refusal("0.19.8", "no warmup")
        assert answer("0.18.9", "no warmup")["engine"]["rates"] == [0.0, 0.0, 1e-3]

    def test_the_first_step_of_a_warmup_once_ran_at_the_full_rate(self, answer):
        assert answer("0.14.5", "warmup")["engine"]["rates"][0] == 1e-3
        assert answer("0.19.8", "warmup")["engine"]["rates"][0] == 0.0

    def test_checks_of_the_newest_release(self, refusal):
        message = refusal("0.19.8", "ratio of offload below 1 at stage 2")
        assert "Partial offloading only supported for ZeRO Stage 3" in message
        assert "ZeRO Stage 1, 2, or 3" in refusal("0.19.8", "master weights in bf16 without zero")
        assert "param_dtype" in refusal("0.19.8", "parameter dtype that differs")


def test_auto_is_admitted_only_for_a_reader_that_fills_it_in():
    config = {"train_batch_size": "auto", **BF16, **zero(3, reduce_bucket_size="auto")}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(config, schemas.ds_config_schema("0.19"))
    jsonschema.validate(config, schemas.ds_config_schema("0.19", reader="5.23.0"))
    unfilled = {**config, **zero(3, sub_group_size="auto")}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(unfilled, schemas.ds_config_schema("0.19", reader="5.23.0"))


def test_auto_reaches_the_parameters_of_optimizer_and_schedule():
    schema = schemas.ds_config_schema("0.19", reader="5.23.0")
    config = {
        "train_batch_size": "auto",
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto"}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}},
    }
    jsonschema.validate(config, schema)
    config["optimizer"] = {"type": "adamw", "params": {"learning_rate": "auto"}}
    with pytest.raises(jsonschema.ValidationError, match="learning_rate"):
        jsonschema.validate(config, schema)


def test_an_unknown_minor_release_has_no_schema():
    with pytest.raises(LookupError):
        schemas.ds_config_schema("0.13.5")
    with pytest.raises(LookupError):
        schemas.ds_config_defaults("0.13.5")
