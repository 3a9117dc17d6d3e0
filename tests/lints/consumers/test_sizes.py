"""What rules say of memory: what DeepSpeed, the Trainer and TRL ask for, held against the sums."""

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import pytest
import yaml

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from apart import apart  # noqa: E402
from programs import example  # noqa: E402
from test_libraries import config_of, llama, yaml_of  # noqa: E402
from test_started import rows, trainer  # noqa: E402
from tests.lints.lint_asking import lint  # noqa: E402

torch = pytest.importorskip("torch")
for needed in ("deepspeed", "transformers", "accelerate", "trl"):
    pytest.importorskip(needed)

pytestmark = pytest.mark.usefixtures("own_environment")

WIDTH = 64


def summed(rule: str, folder: Path, number: int = 0) -> dict[str, float]:
    """The terms of the sum behind a rule's finding in its bad example."""
    held = example(rule, "bad", number)
    found = lint(folder, held.files, held.arguments).findings
    (terms,) = (each["sum"] for each in found if each["id"] == rule)
    return {each["name"]: each["value"] for each in terms}


# ── DeepSpeed ────────────────────────────────────────────────────────────────────────────────────


def _asked(config: dict[str, Any], steps: int = 1) -> list[int]:
    """The bytes of each tensor as large as a bucket that an engine asks for in so many steps."""
    import deepspeed

    from tunec.targets.deepspeed.consumer.initialize import _surroundings

    least = config["zero_optimization"].get("reduce_bucket_size", 500_000_000)
    made, empty = [], torch.empty

    def record(*size: Any, **given: Any) -> Any:
        if size and isinstance(size[0], int) and size[0] >= least:
            made.append(size[0] * given["dtype"].itemsize)
        return empty(*size, **given)  # pages that nobody writes to are not there

    with _surroundings(2, {}), patch("torch.empty", record):
        module = torch.nn.Linear(WIDTH, WIDTH)
        engine, *_ = deepspeed.initialize(
            model=module, optimizer=torch.optim.AdamW(module.parameters()), config=config
        )
        dtype = next(engine.module.parameters()).dtype
        for _ in range(steps):
            engine.backward(engine(torch.ones(1, WIDTH, dtype=dtype)).sum())
    return made


@pytest.mark.parametrize("number", [0, 1])
def test_buckets_are_made_whole(number: int, tmp_path: Path) -> None:
    """buckets-fill-device"""
    terms = summed("buckets-fill-device", tmp_path, number)
    taken = apart(_asked, config_of("buckets-fill-device", number))
    assert sum(taken) == math.prod(terms.values())


def _loaded(plugin: dict[str, Any]) -> list[int]:
    """The numbers that a process holds of each weight, after it has loaded a model."""
    import accelerate
    import deepspeed.comm
    from transformers import LlamaForCausalLM

    llama().save_pretrained("model")
    deepspeed.comm.init_distributed(dist_backend="fake", verbose=False)
    held = accelerate.DeepSpeedPlugin(**plugin)
    held.select(_from_accelerator_state=True)  # as AcceleratorState does
    model = LlamaForCausalLM.from_pretrained("model")
    return [each.numel() for each in model.parameters()]


def test_every_process_loads_the_whole_model() -> None:
    """every-process-loads-the-model; from accelerate 1.0 on stage 3 does not, whatever is said"""
    said = yaml_of("every-process-loads-the-model", "accelerate.yaml")["deepspeed_config"]
    whole = [each.numel() for each in llama().parameters()]
    assert apart(_loaded, said, world=8) == whole
    assert set(apart(_loaded, {"zero_stage": 3, "zero3_init_flag": False}, world=8)) == {0}


def test_a_buffer_of_nvme_is_of_two_bytes_each(tmp_path: Path) -> None:
    """nvme-buffers-fill-memory: what is pinned is asked of a device that holds nothing"""
    from deepspeed.runtime.swap_tensor import partitioned_param_swapper as module
    from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

    rule = "nvme-buffers-fill-memory"
    zero = config_of(rule)["zero_optimization"]
    zero["offload_param"]["nvme_path"] = str(tmp_path)
    aio = {"block_size": 2**20, "queue_depth": 8, "single_submit": False, "overlap_events": True}
    config = SimpleNamespace(
        zero_config=DeepSpeedZeroConfig(**zero),
        aio_config={**aio, "use_gds": False, "intra_op_parallelism": 1},
    )
    handle = MagicMock(new_cpu_locked_tensor=lambda _, tensor: tensor)
    asked = SimpleNamespace(dtype=torch.bfloat16)
    asked._io_aligned_numel = lambda count: count
    empty = torch.empty
    with (
        patch.object(module, "AsyncIOBuilder", lambda: MagicMock(**{"load.return_value": handle})),
        patch.object(module.dist, "get_rank", lambda: 0),
        patch("torch.empty", lambda *size, **given: empty(*size, **{**given, "device": "meta"})),
    ):
        handle.aio_handle.return_value = handle
        module.AsyncPartitionedParameterSwapper._configure_aio(asked, config)
    terms = summed(rule, tmp_path)
    assert asked.buffers.numel() * 2 * terms["processes of a node"] == math.prod(terms.values())


@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_offload_takes_what_deepspeed_estimates(number: int, tmp_path: Path) -> None:
    """offload-beyond-host-memory"""
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs

    terms = summed("offload-beyond-host-memory", tmp_path, number)
    with_params = terms["bytes of a parameter"] == 18
    taken, *_ = estimate_zero3_model_states_mem_needs(
        int(terms["parameters"]), 0, 1, int(terms["nodes"]), True, with_params, True
    )
    assert taken == pytest.approx(math.prod(terms.values()) / terms["nodes"] ** 2)


class Drive:
    """What DeepSpeed writes and reads by its asynchronous files, which need a library of the OS."""

    def __init__(self) -> None:
        self.held: dict[str, Any] = {}
        self.asked = 0
        self.pinned: set[int] = set()

    def new_cpu_locked_tensor(self, count: int, like: Any) -> Any:
        made = torch.zeros(count, dtype=like.dtype)
        self.pinned.add(made.untyped_storage().data_ptr())
        return made

    def is_pinned(self, tensor: Any) -> bool:
        return tensor.untyped_storage().data_ptr() in self.pinned

    def async_pwrite(self, tensor: Any, path: str, *_: Any) -> int:
        self.held[path] = tensor.clone()
        self.asked += 1
        return 0

    def async_pread(self, tensor: Any, path: str, *_: Any) -> int:
        tensor.copy_(self.held[path])
        self.asked += 1
        return 0

    def wait(self) -> int:
        done, self.asked = self.asked, 0
        return done


def _kept_away(config: dict[str, Any], count: int) -> dict[str, int]:
    """The bytes of each kind of file below the path of an offload, after a step."""
    import deepspeed

    from tunec.targets.deepspeed.consumer.initialize import _surroundings

    drive = Drive()
    with _surroundings(1, {}), patch("deepspeed.ops.op_builder.AsyncIOBuilder.load") as load:
        load.return_value.aio_handle.return_value = drive
        module = torch.nn.Linear(count // WIDTH, WIDTH, bias=False)
        weights = module.parameters()
        engine, *_ = deepspeed.initialize(model=module, model_parameters=weights, config=config)
        engine.backward(engine(torch.ones(1, count // WIDTH)).sum())
        engine.step()
    return {Path(name).name: each.nbytes for name, each in drive.held.items()}


def test_what_is_written_to_nvme(tmp_path: Path) -> None:
    """offload-beyond-nvme"""
    config, count = config_of("offload-beyond-nvme"), 2**20
    config["zero_optimization"]["offload_optimizer"]["nvme_path"] = "here"
    written = apart(_kept_away, config, count)
    kinds = {name.replace("0_0", "").partition(".")[0].partition("_0")[0] for name in written}
    assert kinds == {"", "_gradient", "exp_avg-", "exp_avg_sq-"}
    terms = summed("offload-beyond-nvme", tmp_path)
    assert sum(written.values()) == count * terms["bytes of a parameter"]


# ── the trainer and TRL ──────────────────────────────────────────────────────────────────────────


def _of_a_step(files: dict[str, str]) -> int:
    """The samples of an update, in the file as the trainer fills it."""
    held = trainer(files)
    plugin = held.accelerator.state.deepspeed_plugin or held.args.deepspeed_plugin
    plugin.hf_ds_config.trainer_config_process(held.args)
    return int(plugin.hf_ds_config.config["train_micro_batch_size_per_gpu"])


def test_each_process_adds_a_sample_to_the_batch() -> None:
    """least-batch-of-zero-3"""
    from deepspeed.runtime import config as module

    files = dict(example("least-batch-of-zero-3", "bad", 0).files)
    micro = apart(_of_a_step, files)
    said = {**json.loads(files["ds_config.json"]), "train_micro_batch_size_per_gpu": micro}
    processes = SimpleNamespace(get_world_size=lambda *_, **__: 2, get_rank=lambda: 0)
    with patch.object(module, "dist", processes):
        held = module.DeepSpeedConfig(said)
    assert (micro, held.zero_optimization_stage, held.train_batch_size) == (1, 3, 2)


def _evaluated(files: dict[str, str]) -> list[tuple[int, ...]]:
    """The shapes of the logits in fp32 of an evaluation of 32 samples."""
    from transformers.loss import loss_utils

    held = trainer(files)
    held.model.to(torch.bfloat16)
    seen: list[tuple[int, ...]] = []
    whole = loss_utils.fixed_cross_entropy

    def loss(logits: Any, *given: Any, **more: Any) -> Any:
        assert logits.dtype == torch.float32
        seen.append(tuple(logits.shape))
        return whole(logits, *given, **more)

    with patch.object(loss_utils, "fixed_cross_entropy", loss):
        held.evaluate(rows(32))
    return seen


def test_evaluation_takes_its_own_number_of_samples() -> None:
    """evaluation-batch-above-training: logits in fp32 of all tokens of all samples at once"""
    said = example("evaluation-batch-above-training", "bad", 0).files
    for files, samples in ((said, 16), ({"training_args.yaml": "output_dir: out"}, 8)):
        shapes = apart(_evaluated, files)
        assert shapes == [(samples * 4, 64)] * (32 // samples)


def _engine(said: dict[str, Any]) -> dict[str, Any]:
    """What vLLM is started with by TRL."""
    import trl
    from trl.generation import vllm_generation as module

    config = trl.GRPOConfig(**{**said, "use_cpu": True, "bf16": False})
    made: dict[str, Any] = {}
    generation = module.VLLMGeneration.__new__(module.VLLMGeneration)
    here = SimpleNamespace(
        num_processes=1, process_index=0, local_process_index=0, wait_for_everyone=lambda: None
    )
    asked = {
        "mode": config.vllm_mode,
        "tensor_parallel_size": config.vllm_tensor_parallel_size,
        "gpu_memory_utilization": config.vllm_gpu_memory_utilization,
        "enable_sleep_mode": config.vllm_enable_sleep_mode,
        "accelerator": here,
        "model": llama(),
    }
    for key in ("max_model_length", "max_num_seqs", "model_impl", "trust_remote_code"):
        asked[key] = None
    vars(generation).update(asked)
    module.LLM = lambda **given: made.update(given)
    module.is_vllm_available = lambda: True
    generation._init_vllm()
    return {"share": made["gpu_memory_utilization"], "slept": made["enable_sleep_mode"]}


@pytest.mark.parametrize(("kind", "share"), [("bad", 0.95), ("good", 0.3)])
def test_an_engine_in_the_trainer_s_process_is_told_its_share(kind: str, share: float) -> None:
    """engine-leaves-no-room: a share of the whole device, whatever the policy takes of it"""
    said = yaml.safe_load(example("engine-leaves-no-room", kind, 0).files["grpo.yaml"])
    away = ("model_name_or_path", "dataset_name")
    held = {key: value for key, value in said.items() if key not in away}
    assert apart(_engine, held) == {"share": share, "slept": False}
