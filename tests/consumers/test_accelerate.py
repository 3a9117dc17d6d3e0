"""What releases of accelerate really do with the file of `accelerate launch --config_file`."""

from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest
import yaml
from packaging.version import Version

from tunec.compiler.consumers.sets import releases
from tunec.compiler.read import found_plain, read
from tunec.targets.accelerate.config import schema
from tunec.targets.accelerate.target import TARGET
from tunec.targets.generate_schemas import FOLDER, accelerate_documents, text

SETS = releases("accelerate")
VERSIONS = tuple(known.version for known in SETS)
FIRST_FP8, FIRST_FSDP2 = Version("0.34"), Version("1.6")


def config(kind: str, section: str = "", mixed: str = "bf16", **more: str) -> str:
    lines = {"distributed_type": kind, "mixed_precision": mixed, "num_processes": "2", **more}
    if section:
        name = "deepspeed_config" if kind == "DEEPSPEED" else "fsdp_config"
        lines[name] = "{" + section + "}"
    return "".join(f"{key}: {value}\n" for key, value in lines.items() if value)


FILES: Mapping[str, str] = {
    "ddp": config("MULTI_GPU"),
    "bare no": config("MULTI_GPU", mixed="no"),
    "bare NO": config("NO", mixed="'no'"),
    "no processes": config("MULTI_GPU", num_processes=""),
    "unknown key": config("MULTI_GPU", num_proceses="2"),
    "unknown key in a section": config("FSDP", "fsdp_shard: 1"),
    "zero": config("DEEPSPEED", "zero_stage: 3, offload_optimizer_device: cpu"),
    "zero as text": config(
        "DEEPSPEED", "zero_stage: '3', gradient_accumulation_steps: '4', gradient_clipping: '0.5'"
    ),
    "zero, nothing said": config("DEEPSPEED"),
    "zero, auto": config(
        "DEEPSPEED", "gradient_accumulation_steps: auto, gradient_clipping: auto, zero_stage: 1"
    ),
    "zero, to be saved": config("DEEPSPEED", "zero_stage: 3, zero3_save_16bit_model: true"),
    "zero, yes": config("DEEPSPEED", "zero_stage: 3, zero3_save_16bit_model: 'yes'"),
    "zero with a path": config(
        "DEEPSPEED",
        "zero_stage: 3, offload_optimizer_device: nvme, offload_optimizer_nvme_path: /nvme",
    ),
    "fsdp": config("FSDP", "fsdp_sharding_strategy: SHARD_GRAD_OP, fsdp_offload_params: true"),
    "fsdp by number": config("FSDP", "fsdp_sharding_strategy: 2"),
    "fsdp without prefixes": config("FSDP", "sharding_strategy: 2, use_orig_params: false"),
    "fsdp in small letters": config("FSDP", "fsdp_sharding_strategy: shard_grad_op"),
    "fsdp with classes": config(
        "FSDP",
        "fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP, fsdp_transformer_layer_cls_to_wrap: [A, B]",
    ),
    "fsdp as accelerate asks": config("FSDP", "fsdp_reshard_after_forward: SHARD_GRAD_OP"),
    "fsdp that recomputes": config("FSDP", "fsdp_activation_checkpointing: true"),
    "fsdp of no strategy": config("FSDP", "fsdp_sharding_strategy: FULL"),
    "fsdp 2": config(
        "FSDP", "fsdp_version: 2, fsdp_reshard_after_forward: false, fsdp_sharding_strategy: 2"
    ),
    "chosen devices": config("MULTI_GPU", gpu_ids="1,3"),
    "fp8": config("MULTI_GPU", fp8_config="{fp8_margin: 2}"),
}
QUESTIONS = {name: {"verb": "resolve", "yaml": content} for name, content in FILES.items()}


@pytest.fixture
def plugin(answer):
    def of(version: str, name: str) -> Any:
        assert answer(version, name)["refused"] is None
        return answer(version, name)["plugin"]

    return of


def test_the_files_we_ship_are_what_the_releases_say(told):
    for path, content in accelerate_documents(list(told.values())).items():
        assert (FOLDER / path).read_text(encoding="utf-8") == text(content), path


SILENT = {"unknown key in a section", "fsdp with classes"}
"""Files with a fault that the launcher never sees."""


@pytest.mark.parametrize("version", VERSIONS)
class TestEveryRelease:
    def test_is_the_one_asked_for(self, version, answer):
        assert answer(version, "ddp")["version"] == version

    @pytest.mark.parametrize("name", FILES)
    def test_takes_what_its_schema_admits(self, version, name, told, refusal):
        """And refuses what it does not, but for faults that it passes over."""
        document = yaml.safe_load(FILES[name])
        faults = list(
            jsonschema.Draft202012Validator(told[version].answers["schema"]).iter_errors(document)
        )
        if name in SILENT or name == "bare NO":
            assert refusal(version, name) is None
        elif name == "no processes":
            assert refusal(version, name) is not None
        else:
            assert bool(faults) == (refusal(version, name) is not None), faults

    @pytest.mark.parametrize("name", [name for name in FILES if name.startswith("zero")])
    def test_what_we_read_is_what_it_resolves(self, version, name, plugin):
        found = found_plain(yaml.safe_load(FILES[name]))
        held = plugin(version, name)
        slots = {
            "zero.stage": held["zero_stage"],
            "zero.offload_optimizer": held["offload_optimizer_device"],
            "zero.offload_param": held["offload_param_device"],
            "zero.gather_on_save": held["zero3_save_16bit_model"],
            "batch.accumulation": held["gradient_accumulation_steps"],
            "optimizer.max_grad_norm": held["gradient_clipping"],
            "parallel.engine": "deepspeed",
            "parallel.world": 2,
        }
        said = {
            each.slot: each.value
            for each in read(TARGET, {"accelerate.yaml": found}, Version(version))
        }
        known = {slot: value for slot, value in slots.items() if value != "auto"}
        assert {slot: said.get(slot) for slot in slots if slot in said} == known

    def test_drops_the_path_of_nvme(self, version, plugin):
        held = plugin(version, "zero with a path")
        assert held["offload_optimizer_device"] == "nvme"
        assert held["offload_optimizer_nvme_path"] == "none"

    def test_takes_only_true_for_the_16_bit_save(self, version, plugin):
        assert plugin(version, "zero, to be saved")["zero3_save_16bit_model"] is True
        assert plugin(version, "zero, yes")["zero3_save_16bit_model"] is False

    def test_breaks_a_list_of_classes(self, version, answer):
        assert (
            answer(version, "fsdp with classes")["environment"]["FSDP_TRANSFORMER_CLS_TO_WRAP"]
            == "['A', 'B']"
        )

    def test_reads_a_strategy_by_number_and_without_prefix(self, version, plugin):
        for name in ("fsdp", "fsdp by number", "fsdp without prefixes"):
            assert plugin(version, name)["sharding_strategy"] == "SHARD_GRAD_OP"

    def test_the_first_version_of_fsdp_drops_what_accelerate_config_writes(self, version, plugin):
        assert plugin(version, "fsdp as accelerate asks")["sharding_strategy"] == "FULL_SHARD"

    def test_recomputes_from_0_31(self, version, plugin, answer):
        said = answer(version, "fsdp that recomputes")["environment"]
        assert ("FSDP_ACTIVATION_CHECKPOINTING" in said) == (Version(version) >= Version("0.31"))
        held = plugin(version, "fsdp that recomputes")["activation_checkpointing"]
        assert held == (Version(version) >= Version("0.31"))

    def test_knows_the_second_version_of_fsdp_from_1_6(self, version, plugin):
        held = plugin(version, "fsdp 2")
        if Version(version) < FIRST_FSDP2:
            assert "fsdp_version" not in held
            assert held["sharding_strategy"] == "SHARD_GRAD_OP"
        else:
            assert held["fsdp_version"] == 2
            assert held["reshard_after_forward"] is False
            assert held["sharding_strategy"] is None

    def test_refuses_a_bare_no_late_from_0_34(self, version, refusal):
        message = refusal(version, "bare no")
        assert (message is None) == (Version(version) < Version("0.34"))
        assert message is None or message.startswith("environment: 'bool' object")

    def test_takes_a_bare_no_for_one_process(self, version, answer):
        assert answer(version, "bare NO")["arguments"]["multi_gpu"] is False

    def test_refuses_keys_that_it_does_not_know(self, version, refusal):
        assert "unknown keys (['num_proceses'])" in refusal(version, "unknown key")
        is_new = Version(version) >= FIRST_FP8
        assert (refusal(version, "fp8") is None) == is_new

    def test_hands_the_chosen_devices_on(self, version, answer):
        assert answer(version, "chosen devices")["environment"]["CUDA_VISIBLE_DEVICES"] == "1,3"


def test_every_release_has_a_schema():
    for release in TARGET.releases:
        name = schema(TARGET.dialect(Version(release)))
        assert name is not None
        assert (FOLDER / name).is_file()
