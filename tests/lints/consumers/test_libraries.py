"""What rules say of libraries themselves, asked of the installed ones: no file alone shows it."""

import json
import os
import sys
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import yaml

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from apart import apart  # noqa: E402
from programs import example  # noqa: E402

from tunec.compiler.analyses.architecture.layer_classes import LAYERS  # noqa: E402

torch = pytest.importorskip("torch")
for needed in ("deepspeed", "transformers", "accelerate", "peft", "trl"):
    pytest.importorskip(needed)


pytestmark = pytest.mark.usefixtures("own_environment")


def config_of(rule: str, number: int = 0) -> dict[str, Any]:
    """The ds_config.json of a rule's bad example."""
    found: dict[str, Any] = json.loads(example(rule, "bad", number).files["ds_config.json"])
    return found


def yaml_of(rule: str, name: str, number: int = 0) -> dict[str, Any]:
    """A YAML file of a rule's bad example."""
    found: dict[str, Any] = yaml.safe_load(example(rule, "bad", number).files[name])
    return found


def llama(layers: int = 2, **said: Any) -> Any:
    import transformers

    tiny = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "vocab_size": 64}
    config = transformers.LlamaConfig(num_hidden_layers=layers, **{**tiny, **said})
    return transformers.LlamaForCausalLM(config)


# ── what DeepSpeed's engine hands on ─────────────────────────────────────────────────────────────


def _passed(config: Mapping[str, Any]) -> dict[str, str]:
    """Start the engine with a recorder in the place of its ZeRO optimizer."""
    import deepspeed
    import deepspeed.runtime.engine as engine
    import deepspeed.runtime.superoffload.superoffload_stage3  # a subclass of what is replaced

    from tunec.targets.deepspeed.consumer.initialize import _surroundings

    found: dict[str, str] = {}

    def record(*_: Any, **given: Any) -> Any:
        found.update({key: str(value) for key, value in given.items()})
        raise InterruptedError

    module = torch.nn.Linear(8, 8)
    client = torch.optim.AdamW(module.parameters())
    home = "deepspeed.runtime.zero.stage3.DeepSpeedZeroOptimizer_Stage3"
    with (
        _surroundings(1, {}),
        patch.object(engine, "DeepSpeedZeroOptimizer", record),
        patch(home, record),
        patch.object(engine, "DeepSpeedZeRoOffload", record),
        suppress(InterruptedError),
    ):
        deepspeed.initialize(
            model=module,
            model_parameters=list(module.parameters()),
            optimizer=None if "optimizer" in config else client,
            config=dict(config),
        )
    return found


def passed(config: Mapping[str, Any]) -> dict[str, str]:
    """The keyword arguments that the ZeRO optimizer is given, in a process of its own."""
    found: dict[str, str] = apart(_passed, config)
    return found


@pytest.mark.parametrize(
    ("rule", "keys"),
    [
        ("offload-param-ignored", ("offload_param_config",)),
        ("stage-3-keys-below-stage-3", ("prefetch_bucket_size", "zero_hpz_partition_size")),
        ("stage-2-keys-at-stage-3", ("allgather_bucket_size", "round_robin_gradients")),
    ],
)
def test_keys_that_the_stage_is_not_given(rule: str, keys: tuple[str, ...]) -> None:
    given = passed(config_of(rule))
    assert "contiguous_gradients" in given
    assert not set(keys) & set(given)


def _grouped(world: int, width: int) -> str:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group(
        "fake", store=FakeStore(), rank=world - 1, world_size=world
    )
    mesh = init_device_mesh("cpu", (world // width, width), mesh_dim_names=("data", "tensor"))
    return str(mesh.get_group("tensor"))


def test_the_last_process_is_in_no_group() -> None:
    """parallel-width-does-not-divide: the groups of deepspeed 0.17.6 `_init_tp_mesh_device`."""
    width = config_of("parallel-width-does-not-divide")["tensor_parallel"]["autotp_size"]
    assert apart(_grouped, 6, width).startswith("IndexError")


def test_nvme_below_stage_3_is_the_cpu() -> None:
    given = passed(config_of("nvme-offload-below-stage-3"))
    assert "nvme" in given["offload_optimizer_config"]
    assert not [key for key in given if "swap" in key or "aio" in key]


def test_adam_is_adamw() -> None:
    from deepspeed.runtime.engine import DeepSpeedEngine

    given: dict[str, Any] = {}
    said = config_of("adam-is-adamw")["optimizer"]
    engine = SimpleNamespace(
        optimizer_params=said["params"].copy,
        optimizer_name=said["type"].lower,
        zero_use_cpu_optimizer=lambda: False,
    )
    engine.get_optimizer_configuration = partial(
        DeepSpeedEngine.get_optimizer_configuration, engine
    )

    def record(*_: Any, **settings: Any) -> None:
        given.update(settings)

    with patch("deepspeed.ops.adam.FusedAdam", record):
        DeepSpeedEngine._configure_basic_optimizer(engine, [])
    assert given["adam_w_mode"] is True


def test_an_initial_scale_takes_a_step_for_every_halving() -> None:
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler

    power = config_of("initial-loss-scale-too-high")["fp16"]["initial_scale_power"]
    settings = {"scale_window": 1000, "min_scale": 1, "delayed_shift": 1}
    scaler = DynamicLossScaler(2**power, **settings, consecutive_hysteresis=False)
    with patch("deepspeed.runtime.fp16.loss_scaler.dist", SimpleNamespace(get_rank=lambda: 1)):
        for _ in range(power - 16):
            scaler.update_scale(overflow=True)
    assert scaler.cur_scale == 2**16


def test_a_batch_is_checked_for_one_process_before_the_group_is_there() -> None:
    from deepspeed.runtime.config import DeepSpeedConfig

    with pytest.raises(AssertionError, match=r"16 != 1 \* 8 \* 1"):
        DeepSpeedConfig(config_of("batch-pinned-before-init"))


def test_auto_that_nobody_fills_is_refused() -> None:
    from accelerate.utils import DeepSpeedPlugin
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    held = HfTrainerDeepSpeedConfig(config_of("auto-never-filled"))
    plugin = DeepSpeedPlugin(hf_ds_config=held)
    with pytest.raises(ValueError, match=r"sub_group_size` not found in kwargs"):
        plugin.deepspeed_config_process(must_match=False, train_micro_batch_size_per_gpu=1)


# ── transformers ─────────────────────────────────────────────────────────────────────────────────


def test_no_device_map_under_zero_3(tmp_path: Path) -> None:
    import transformers
    from transformers.integrations.deepspeed import HfDeepSpeedConfig

    llama().save_pretrained(tmp_path)
    held = HfDeepSpeedConfig(config_of("device-map-under-zero-3"))
    with pytest.raises(ValueError, match="not compatible with passing a `device_map`"):
        transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path, device_map=yaml_of("device-map-under-zero-3", "model_args.yaml")["device_map"]
        )
    del held


def test_the_launcher_s_precision_gives_way(tmp_path: Path) -> None:
    import transformers

    os.environ["ACCELERATE_MIXED_PRECISION"] = yaml_of(
        "launcher-precision-differs", "accelerate.yaml"
    )["mixed_precision"]
    said = yaml_of("launcher-precision-differs", "training_args.yaml")
    with patch("transformers.training_args.is_torch_bf16_gpu_available", lambda: True):
        held = transformers.TrainingArguments(**{**said, "output_dir": str(tmp_path)})
    assert held.fp16 is True
    assert held.mixed_precision == "fp16" or os.environ["ACCELERATE_MIXED_PRECISION"] == "fp16"


def test_split_batches_cut_what_a_device_was_to_get() -> None:
    from accelerate.data_loader import BatchSamplerShard

    said = yaml_of("split-batches-overrides-batch", "training_args.yaml")
    batches = torch.utils.data.BatchSampler(
        range(32), said["per_device_train_batch_size"], drop_last=False
    )
    shard = BatchSamplerShard(batches, 4, 0, split_batches=True)
    assert {len(each) for each in shard} == {2}


def test_reentrant_recomputation_of_a_frozen_input_has_no_gradient() -> None:
    """reentrant-over-frozen-base: transformers before 5 hands the option on to torch."""
    from torch.utils.checkpoint import checkpoint

    said = yaml_of("reentrant-over-frozen-base", "training_args.yaml")
    assert said["gradient_checkpointing"] is True
    layer, frozen = torch.nn.Linear(2, 2), torch.ones(1, 2)
    assert checkpoint(layer, frozen, use_reentrant=True).requires_grad is False
    assert checkpoint(layer, frozen, use_reentrant=False).requires_grad is True


# ── accelerate and PEFT ──────────────────────────────────────────────────────────────────────────


def test_leaf_class_of_another_model() -> None:
    from accelerate import DeepSpeedPlugin

    said = yaml_of("leaf-class-of-another-model", "accelerate.yaml")["deepspeed_config"]
    plugin = DeepSpeedPlugin(
        zero_stage=3, transformer_moe_cls_names=said["deepspeed_moe_layer_cls_names"]
    )
    with pytest.raises(Exception, match="Could not find a transformer layer class called"):
        plugin.set_moe_leaf_modules(llama())


def test_wrap_class_of_another_model() -> None:
    import transformers
    from accelerate import FullyShardedDataParallelPlugin

    said = yaml_of("fsdp-wrap-class-of-another-model", "accelerate.yaml")["fsdp_config"]
    plugin = FullyShardedDataParallelPlugin(
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=[said["fsdp_transformer_layer_cls_to_wrap"]],
    )
    tiny = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "vocab_size": 64}
    config = transformers.Qwen2Config(num_hidden_layers=1, num_key_value_heads=4, **tiny)
    with pytest.raises(ValueError, match="Could not find the transformer layer class"):
        plugin.set_auto_wrap_policy(transformers.Qwen2ForCausalLM(config))


def test_the_layers_of_families_are_classes_of_transformers() -> None:
    from importlib.util import find_spec

    from transformers.models.auto.configuration_auto import model_type_to_module_name

    for family, names in LAYERS.items():
        module = model_type_to_module_name(family)
        found = find_spec(f"transformers.models.{module}.modeling_{module}")
        assert found is not None
        assert found.origin is not None
        text = Path(found.origin).read_text("utf-8")
        assert [name for name in names if f"\nclass {name}(" not in text] == []


@pytest.mark.parametrize("kind", ["bad", "good"])
def test_gemma_3_lists_classes_that_it_does_not_have(kind: str) -> None:
    import transformers
    from accelerate import FullyShardedDataParallelPlugin

    file = example("fsdp-layer-classes-absent", kind, 0).files["accelerate.yaml"]
    names = yaml.safe_load(file)["fsdp_config"].get("fsdp_transformer_layer_cls_to_wrap")
    plugin = FullyShardedDataParallelPlugin(
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=names and names.split(","),
    )
    tiny = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
    parts = {"num_hidden_layers": 1, **tiny}
    config = transformers.Gemma3Config(
        text_config={"vocab_size": 64, "num_key_value_heads": 2, "head_dim": 16, **parts},
        vision_config={"image_size": 28, "patch_size": 14, **parts},
    )
    refused = pytest.raises(ValueError, match="Could not find the transformer layer class")
    with refused if kind == "bad" else nullcontext():
        plugin.set_auto_wrap_policy(transformers.Gemma3ForConditionalGeneration(config))


def test_classes_to_wrap_are_split_at_the_commas_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers
    from accelerate import FullyShardedDataParallelPlugin

    said = yaml_of("fsdp-class-with-a-blank", "accelerate.yaml")["fsdp_config"]
    names = said["fsdp_transformer_layer_cls_to_wrap"]
    plugin = FullyShardedDataParallelPlugin(
        auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=names
    )
    tiny = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "vocab_size": 64}
    config = transformers.LlamaConfig(num_hidden_layers=1, num_key_value_heads=4, **tiny)
    with pytest.raises(ValueError, match="layer class  MistralDecoderLayer"):
        plugin.set_auto_wrap_policy(transformers.LlamaForCausalLM(config))


@pytest.mark.parametrize("number", [0, 1])
def test_a_count_of_text_is_not_divided(number: int, tmp_path: Path) -> None:
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_multi_gpu_env

    file = tmp_path / "accelerate.yaml"
    said = yaml_of("count-without-a-number", "accelerate.yaml", number)
    file.write_text(yaml.safe_dump({"use_cpu": False, "machine_rank": 0, **said}), "utf-8")
    asked = launch_command_parser().parse_args(["--config_file", str(file), "train.py"])
    with pytest.raises(TypeError):
        prepare_multi_gpu_env(_validate_launch_command(asked)[0])


def test_a_backend_of_compile_that_nobody_knows() -> None:
    from accelerate.utils import TorchDynamoPlugin

    said = yaml_of("compile-word-unknown", "train.yaml")["torch_compile_backend"]
    with pytest.raises(ValueError, match="is not a valid DynamoBackend"):
        TorchDynamoPlugin(backend=said)


def test_layers_that_the_model_has_not() -> None:
    import peft

    text = example("layers-to-transform-out-of-range", "bad", 0).files["adapter_config.json"]
    said = {key: value for key, value in json.loads(text).items() if key != "peft_type"}
    beyond = {**said, "layers_to_transform": [max(said["layers_to_transform"])]}
    with pytest.raises(ValueError, match="not found in the base model"):
        peft.get_peft_model(llama(), peft.LoraConfig(**beyond))


def test_names_of_the_language_model_are_in_the_vision_tower() -> None:
    import peft
    import transformers

    tiny = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4}
    layers = {"num_hidden_layers": 1}
    vision = transformers.CLIPVisionConfig(**tiny, **layers, image_size=28, patch_size=14)
    text = transformers.LlamaConfig(**tiny, **layers, vocab_size=64)
    config = transformers.LlavaConfig(vision_config=vision, text_config=text)
    model = transformers.LlavaForConditionalGeneration(config)
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"]))
    trained = [name for name, each in adapted.named_parameters() if each.requires_grad]
    assert any("vision_tower" in name for name in trained)


@pytest.mark.parametrize(("name", "numbers"), [("adafactor", set()), ("adamw_torch", {"betas"})])
def test_numbers_of_adam_are_for_adam(name: str, numbers: set[str], tmp_path: Path) -> None:
    import transformers

    said = {**yaml_of("adam-numbers-unread", "training_args.yaml"), "optim": name}
    arguments = transformers.TrainingArguments(
        **{**said, "output_dir": str(tmp_path), "use_cpu": True, "bf16": False}
    )
    _, given = transformers.Trainer.get_optimizer_cls_and_kwargs(arguments)
    assert {"betas", "eps"} & set(given) >= numbers
    assert ("betas" in given) is bool(numbers)
