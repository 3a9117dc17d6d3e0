"""What rules say of torch, DeepSpeed and PEFT below the trainer, seen without a GPU."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import pytest

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from apart import apart  # noqa: E402
from programs import example  # noqa: E402
from test_launchers import run_with, script, shell  # noqa: E402
from test_libraries import config_of, llama, passed, yaml_of  # noqa: E402

torch = pytest.importorskip("torch")
for needed in ("deepspeed", "transformers", "accelerate", "peft", "trl"):
    pytest.importorskip(needed)

pytestmark = pytest.mark.usefixtures("own_environment")


# ── torch ────────────────────────────────────────────────────────────────────────────────────────


def _recomputed_twice() -> str:
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.checkpoint import checkpoint

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            for _ in range(2):
                x = checkpoint(self.layer, x, use_reentrant=True)
            return x

    said = yaml_of("unused-parameters-with-checkpointing", "training_args.yaml")
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    unused = said["ddp_find_unused_parameters"]
    model = DistributedDataParallel(Block(), find_unused_parameters=unused)
    model(torch.ones(1, 2, requires_grad=True)).sum().backward()
    return "trained"


def test_a_parameter_is_ready_only_once() -> None:
    """unused-parameters-with-checkpointing"""
    assert "mark a variable ready only once" in apart(_recomputed_twice)


def _flattened() -> str:
    from torch.distributed.fsdp import FullyShardedDataParallel

    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    packed = torch.zeros(8, 1, dtype=torch.uint8)  # as bitsandbytes stores four bits by default
    model[0].weight = torch.nn.Parameter(packed, requires_grad=False)
    FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))
    return "wrapped"


def test_packed_weights_cannot_be_flattened_with_the_rest() -> None:
    """quantised-base-under-fsdp"""
    assert "Cannot flatten integer dtype tensors" in apart(_flattened)


def test_triton_has_no_code_for_pascal() -> None:
    """compile-without-hardware"""
    from torch._inductor import scheduler
    from torch._inductor.exc import GPUTooOldForTriton
    from torch._inductor.virtualized import V

    pascal = SimpleNamespace(major=6, minor=0, name="Tesla P100")
    with (
        V.set_graph_handler(MagicMock()),
        patch("torch.cuda.get_device_properties", lambda _: pascal),
        patch.object(scheduler, "has_triton", lambda *_: False),
        patch.object(scheduler, "get_scheduling_for_device", lambda _: MagicMock()),
        pytest.raises(GPUTooOldForTriton),
    ):
        scheduler.Scheduler.create_backend(MagicMock(), torch.device("cuda:0"))


def test_a_large_activation_is_beyond_fp16() -> None:
    """bf16-model-in-fp16: 66246, as measured in T5's feed-forward layer"""
    assert torch.tensor(66246.0).to(torch.float16).isinf()
    assert torch.tensor(66246.0).to(torch.bfloat16).isfinite()


def test_more_workers_than_cores_are_warned_of() -> None:
    said = yaml_of("more-workers-than-cores", "training_args.yaml")
    with (
        patch.object(os, "sched_getaffinity", lambda _: set(range(8))),
        pytest.warns(UserWarning, match="suggested max number of worker in current system is 8"),
    ):
        torch.utils.data.DataLoader(range(4), num_workers=said["dataloader_num_workers"])


# ── launching ────────────────────────────────────────────────────────────────────────────────────


def parsed(rule: str, number: int = 0) -> Any:
    """The words of the example's torchrun, as torchrun reads them."""
    from torch.distributed.run import parse_args

    line = next(each for each in script(rule, number).splitlines() if "torchrun" in each)
    return parse_args(line.partition("torchrun ")[2].split())


def test_a_port_beyond_the_last() -> None:
    """port-taken, processes-started-twice: each launcher opens the port that it is told"""
    port = parsed("port-taken", 1).master_port
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK="0", WORLD_SIZE="1")
    with pytest.raises(ValueError, match="port must have value from 0 to 65535"):
        torch.distributed.init_process_group("gloo")


def test_one_port_is_of_one_run() -> None:
    """port-taken, processes-started-twice: each launcher opens the port that it is told"""
    first = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True)
    with pytest.raises(torch.distributed.DistNetworkError, match="EADDRINUSE"):
        torch.distributed.TCPStore("127.0.0.1", first.port, is_master=True)


def test_a_rank_is_taken_as_it_is() -> None:
    """rank-beyond-nodes"""
    from torch.distributed.run import config_from_args

    config, *_ = config_from_args(parsed("rank-beyond-nodes"))
    assert config.rdzv_configs["rank"] == config.max_nodes == 2


def test_torchrun_is_of_one_node_and_one_process_unless_it_is_told() -> None:
    """nodes-train-apart, devices-left-idle"""
    from torch.distributed.run import config_from_args

    config, *_ = config_from_args(parsed("nodes-train-apart"))
    assert (config.max_nodes, config.nproc_per_node) == (1, 8)
    config, *_ = config_from_args(parsed("devices-left-idle"))
    assert config.nproc_per_node == 1


@shell
def test_a_variable_of_slurm_is_put_in_before_srun_starts(tmp_path: Path) -> None:
    """one-rank-for-every-node: each node is given the words of the first"""
    (told,) = run_with("srun", "SLURM_NODEID=0\n" + script("one-rank-for-every-node", 1), tmp_path)
    assert "--node_rank 0 " in told[0]


def test_a_misspelt_variable_is_not_read() -> None:
    """variable-misspelt"""
    line = script("variable-misspelt").split()[0]
    name, _, value = line.partition("=")
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    os.environ[name] = value
    assert len(torch.cuda._parse_visible_devices()) == 64


def seen(rule: str, present: int) -> int:
    """The devices that torch counts of those present, under an example's variable."""
    words = script(rule).replace("export ", "").split()
    name, _, value = next(each for each in words if "VISIBLE_DEVICES" in each).partition("=")
    os.environ[name] = value
    with patch("torch.cuda._raw_device_count_nvml", lambda: present):
        return int(torch.cuda._device_count_nvml())


def test_a_device_that_is_not_there_hides_those_behind_it() -> None:
    """visible-device-missing"""
    assert seen("visible-device-missing", 4) == 0


def test_what_is_not_visible_is_not_there() -> None:
    """more-processes-than-visible"""
    assert (
        seen("more-processes-than-visible", 8)
        == 2
        < int(parsed("more-processes-than-visible").nproc_per_node)
    )


# ── DeepSpeed ────────────────────────────────────────────────────────────────────────────────────


def _basic(config: dict[str, Any]) -> str:
    """The class that the engine takes for the optimizer of a config."""
    from functools import partial

    from deepspeed.runtime.engine import DeepSpeedEngine

    said = config["optimizer"]
    offloaded = "offload_optimizer" in config.get("zero_optimization", {})
    engine = MagicMock(
        optimizer_params=said["params"].copy,
        optimizer_name=said["type"].lower,
        zero_use_cpu_optimizer=lambda: offloaded,
        zenflow=False,
        super_offload=lambda: False,
    )
    engine.get_optimizer_configuration = partial(
        DeepSpeedEngine.get_optimizer_configuration, engine
    )
    with patch("deepspeed.ops.op_builder.builder.OpBuilder.load", lambda *_, **__: MagicMock()):
        weight = torch.nn.Parameter(torch.ones(2, device="meta"))
        held = DeepSpeedEngine._configure_basic_optimizer(engine, [weight])
        weight.grad = torch.ones(2, device="meta")
        held.step()
    return type(held).__name__


def test_cpu_adam_does_not_step_what_is_on_a_device() -> None:
    """offload-without-zero"""
    answer = apart(_basic, config_of("offload-without-zero"))
    assert "CPUAdam param is on meta and must be 'cpu'" in answer


def test_lamb_is_the_one_of_the_device_where_it_is_offloaded() -> None:
    """optimizer-not-for-offload"""

    class FusedLamb(torch.optim.SGD):  # whose kernels cannot be built here
        def __init__(self, params: Any, **_: Any) -> None:
            super().__init__(params, lr=1.0)

    with patch("deepspeed.ops.lamb.FusedLamb", FusedLamb):
        assert apart(_basic, config_of("optimizer-not-for-offload")) == "FusedLamb"


def test_stage_3_is_not_given_elastic_checkpoints() -> None:
    given = passed(config_of("elastic-checkpoint-at-stage-3"))
    assert "contiguous_gradients" in given
    assert given.get("elastic_checkpoint") != "False"
    assert "elastic_checkpoint" not in given


def test_a_parameter_beyond_a_buffer_is_not_fetched() -> None:
    """nvme-buffer-below-parameter"""
    from deepspeed.runtime.swap_tensor.partitioned_param_swapper import (
        AsyncPartitionedParameterSwapper,
    )

    size = config_of("nvme-buffer-below-parameter")["zero_optimization"]["offload_param"]
    swapper = SimpleNamespace(
        available_swap_in_buffers=lambda: 1, elements_per_buffer=size["buffer_size"]
    )
    parameter = SimpleNamespace(
        ds_id=0, ds_tensor=SimpleNamespace(ds_numel=size["buffer_size"] + 1)
    )
    with pytest.raises(AssertionError, match="More elements"):
        AsyncPartitionedParameterSwapper.get_buffer(
            swapper, parameter, parameter.ds_tensor.ds_numel
        )


def _started(config: dict[str, Any], look: Any) -> Any:
    import deepspeed

    from tunec.targets.deepspeed.consumer.initialize import _surroundings

    with _surroundings(2, {}):
        module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
        engine, *_ = deepspeed.initialize(
            model=module,
            optimizer=torch.optim.AdamW(module.parameters()),
            config={"train_micro_batch_size_per_gpu": 1, **config},
        )
        return look(engine)


def test_weights_are_flat_under_zero_2() -> None:
    """projection-under-zero: GaLore and APOLLO project matrices"""
    config = {"zero_optimization": config_of("projection-under-zero")["zero_optimization"]}

    def look(engine: Any) -> set[int]:
        return {each.dim() for each in engine.optimizer.optimizer.param_groups[0]["params"]}

    assert apart(_started, config, look) == {1}


def test_deepspeed_s_recomputation_is_configured_by_nobody() -> None:
    """deepspeed-checkpointing-ignored"""
    config = config_of("deepspeed-checkpointing-ignored")
    held = {key: config[key] for key in ("zero_optimization", "activation_checkpointing")}

    def look(_: Any) -> bool:
        from deepspeed import checkpointing

        return bool(checkpointing.is_configured())

    assert apart(_started, held, look) is False


def test_what_is_below_the_threshold_stays_whole() -> None:
    """persistence-keeps-model-whole"""
    threshold = config_of("persistence-keeps-model-whole")["zero_optimization"]

    def look(engine: Any) -> list[bool]:
        return [bool(getattr(each, "ds_persist", False)) for each in engine.module.parameters()]

    assert set(apart(_started, {"zero_optimization": threshold}, look)) == {True}
    small = {**threshold, "stage3_param_persistence_threshold": 100}
    assert set(apart(_started, {"zero_optimization": small}, look)) == {True, False}


def test_a_path_is_not_used_where_the_device_is_the_cpu() -> None:
    """nvme-settings-unused"""
    said = config_of("nvme-settings-unused")["zero_optimization"]

    def look(engine: Any) -> bool:
        return bool(engine.optimizer.swap_optimizer)

    config = {"zero_optimization": said, "zero_force_ds_cpu_optimizer": False}
    assert apart(_started, config, look) is False


def _piped(config: dict[str, Any]) -> str:
    import deepspeed
    from deepspeed.pipe import PipelineModule

    from tunec.targets.deepspeed.consumer.initialize import _surroundings

    with _surroundings(2, {}):
        deepspeed.init_distributed()
        model = PipelineModule([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)], num_stages=2)
        deepspeed.initialize(
            model=model, optimizer=torch.optim.AdamW(model.parameters()), config=config
        )
    return "started"


def test_a_pipeline_has_its_gradients_whole() -> None:
    """pipeline-under-zero-2"""
    answer = apart(_piped, config_of("pipeline-under-zero-2"))
    assert "incompatible with pipeline parallelism" in answer


def test_heads_are_spread_evenly() -> None:
    """sequence-width-does-not-divide-heads: Qwen2.5-7B has 28 heads"""
    from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF

    said = yaml_of("sequence-width-does-not-divide-heads", "accelerate.yaml")
    width = said["parallelism_config"]["parallelism_config_sp_size"]
    with (
        patch(f"{UlyssesSPAttentionHF.__module__}.register_all_to_all_group"),
        patch("deepspeed.comm.get_world_size", lambda *_, **__: width),
        patch("deepspeed.comm.get_rank", lambda *_, **__: 0),
        pytest.raises(ValueError, match="Attention head count 28 is not divisible by SP size 8"),
    ):
        UlyssesSPAttentionHF(
            attn=None,
            local_seq_length=8,
            global_seq_length=64,
            batch_size=1,
            attn_head_count=28,
            attn_head_size=128,
            kv_head_count=4,
            num_hidden_layers=28,
            process_group=None,
        )


# ── PEFT and transformers ────────────────────────────────────────────────────────────────────────


def _trained(model: Any) -> list[str]:
    return [name for name, each in model.named_parameters() if each.requires_grad]


def test_what_is_quantised_has_no_weights_to_begin_with() -> None:
    """init-on-quantised-base"""
    import peft

    base = llama()
    for layer in base.model.layers:
        weight = layer.self_attn.q_proj.weight.to(torch.int8)
        layer.self_attn.q_proj.weight = torch.nn.Parameter(weight, requires_grad=False)
    config = peft.LoraConfig(target_modules=["q_proj"], init_lora_weights="pissa")
    with pytest.raises(TypeError, match="initialize PiSSA under float32, float16, or bfloat16"):
        peft.get_peft_model(base, config)


@pytest.mark.parametrize(
    ("given", "fault"), [({"lora_alpha": None}, TypeError), ({"target_modules": []}, ValueError)]
)
def test_an_adapter_without_its_numbers(given: dict[str, Any], fault: type[Exception]) -> None:
    """adapter-without-numbers"""
    import peft

    config = {"r": 16, "lora_alpha": 32, "target_modules": ["q_proj"], **given}
    with pytest.raises(fault):
        peft.get_peft_model(llama(), peft.LoraConfig(**config))


def test_one_end_of_tied_weights_is_adapted() -> None:
    """tied-layer-adapted"""
    import json

    import peft

    said = json.loads(example("tied-layer-adapted", "bad", 0).files["adapter_config.json"])
    config = {key: value for key, value in said.items() if key != "peft_type"}
    with pytest.warns(UserWarning, match="tie_word_embeddings=True"):
        model = peft.get_peft_model(llama(tie_word_embeddings=True), peft.LoraConfig(**config))
    assert not [name for name in _trained(model) if "embed_tokens" in name]


def test_rows_for_new_tokens_are_frozen() -> None:
    """new-tokens-not-trained"""
    import peft

    base = llama()
    base.resize_token_embeddings(66)
    model = peft.get_peft_model(base, peft.LoraConfig(target_modules=["q_proj", "v_proj"]))
    assert not [name for name in _trained(model) if "embed" in name or "lm_head" in name]


def test_modules_beside_an_adapter_are_copied_whole() -> None:
    """saved-module-under-zero-3"""
    import json

    import peft

    said = json.loads(example("saved-module-under-zero-3", "bad", 0).files["adapter_config.json"])
    config = {key: value for key, value in said.items() if key != "peft_type"}
    base = llama()
    before = sum(each.numel() for each in base.parameters())
    model = peft.get_peft_model(base, peft.LoraConfig(**config))
    added = sum(each.numel() for name, each in model.named_parameters() if "lora_" in name)
    copies = sum(each.numel() for each in model.parameters()) - before - added
    assert copies == base.lm_head.weight.numel() + base.get_input_embeddings().weight.numel()


def test_the_base_of_an_adapter_is_not_compared(tmp_path: Path) -> None:
    """adapter-of-another-base"""
    import peft

    first = peft.get_peft_model(llama(), peft.LoraConfig(target_modules=["q_proj"]))
    first.peft_config["default"].base_model_name_or_path = "meta-llama/Llama-3.1-8B"
    first.save_pretrained(tmp_path)
    other = llama()
    other.config._name_or_path = "Qwen/Qwen2.5-7B"
    assert peft.PeftModel.from_pretrained(other, tmp_path) is not None


def test_no_text_is_sampled_at_temperature_0() -> None:
    """temperature-of-zero"""
    from transformers.generation.logits_process import TemperatureLogitsWarper

    said = yaml_of("temperature-of-zero", "grpo.yaml")
    with pytest.raises(ValueError, match="has to be a strictly positive float"):
        TemperatureLogitsWarper(float(said["temperature"]))


def test_an_image_that_is_cut_has_more_features_than_tokens() -> None:
    """image-longer-than-sequence"""
    from transformers import Qwen2_5_VLModel

    held = SimpleNamespace(config=SimpleNamespace(image_token_id=7, video_token_id=8))
    cut, features = torch.full((1, 4), 7), torch.ones(6, 2)
    with pytest.raises(ValueError, match="Image features and image tokens do not match"):
        Qwen2_5_VLModel.get_placeholder_mask(held, cut, torch.ones(1, 4, 2), features)


def test_positions_beyond_the_context_are_taken() -> None:
    """longer-than-context"""
    model = llama(max_position_embeddings=16)
    tokens = torch.ones(1, 64, dtype=torch.long)
    assert model(input_ids=tokens).logits.shape[1] == 64
