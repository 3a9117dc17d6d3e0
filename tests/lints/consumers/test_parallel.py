"""What rules say of ranks that work together, asked of DeepSpeed and accelerate without a GPU."""

import base64
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

import pytest
import yaml

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from apart import apart  # noqa: E402
from programs import example  # noqa: E402
from test_libraries import llama  # noqa: E402

torch = pytest.importorskip("torch")
for needed in ("deepspeed", "transformers", "accelerate"):
    pytest.importorskip(needed)

pytestmark = pytest.mark.usefixtures("own_environment")


RULE = "sequence-groups-uncounted"


def widths_of(rule: str, kind: str = "bad") -> dict[str, Any]:
    """The widths of ranks in the accelerate file of a rule's example."""
    held = yaml.safe_load(example(rule, kind, 0).files["accelerate.yaml"])["parallelism_config"]
    return {name.removeprefix("parallelism_config_"): each for name, each in held.items()}


# ── sequences ────────────────────────────────────────────────────────────────────────────────────


def _registered(attention: str, other: str) -> str:
    from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF

    deepspeed_groups()
    model = llama(num_attention_heads=4, attn_implementation=attention)
    UlyssesSPAttentionHF.register_with_transformers(model, other, 2, micro_batch_size=1)
    return "registered"


def deepspeed_groups() -> None:
    """Let DeepSpeed take torch's fake group for its own."""
    import deepspeed.comm

    deepspeed.comm.init_distributed(dist_backend="fake", verbose=False)


@pytest.mark.parametrize(
    ("attention", "said"), [("eager", "does not match"), ("sdpa", "registered")]
)
def test_the_exchange_is_around_one_attention(attention: str, said: str) -> None:
    """sequence-attention-differs"""
    asked = widths_of("sequence-attention-differs")["sp_attn_implementation"]
    assert said in str(apart(_registered, attention, asked, world=2))


def _step_of(kind: str) -> str:
    """What DeepSpeed says of the samples of a step as accelerate counts them."""
    from accelerate.utils import ParallelismConfig
    from deepspeed.runtime.config import DeepSpeedConfig

    files = example(RULE, kind, 0).files
    config, widths = json.loads(files["ds_config.json"]), widths_of(RULE, kind)
    data = ParallelismConfig(**widths).data_parallel_size
    one = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"]
    started = yaml.safe_load(files["accelerate.yaml"])["num_processes"]
    try:
        with counted(started // widths["sp_size"]):
            DeepSpeedConfig({**config, "train_batch_size": one * data})
    except AssertionError as refused:
        return str(refused)
    return ""


def test_groups_that_share_a_sequence_are_data_parallel() -> None:
    """sequence-groups-uncounted"""
    assert "1 != 1 * 1 * 2" in _step_of("bad")
    assert _step_of("good") == ""


@contextmanager
def counted(processes: int) -> Iterator[None]:
    """So many processes, of which this is the first."""
    import deepspeed.comm

    with (
        patch.object(deepspeed.comm, "get_rank", lambda *_, **__: 0),
        patch.object(deepspeed.comm, "get_world_size", lambda *_, **__: processes),
    ):
        yield


# ── devices ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("kind", "chosen"), [("bad", [0, 1]), ("good", [2, 3])])
def test_a_count_beats_the_visible_devices(
    kind: str, chosen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """visible-devices-overridden"""
    from deepspeed.launcher import runner

    script = example("visible-devices-overridden", kind, 0).files["train.sh"].split()
    if "=" in script[0]:
        monkeypatch.setenv(*script.pop(0).split("=", 1))
    device = MagicMock(
        device_count=lambda: 8, visible_devices_envs=lambda: ["CUDA_VISIBLE_DEVICES"]
    )
    started: list[list[str]] = []

    def start(command: list[str], **_: Any) -> MagicMock:
        started.append(command)
        return MagicMock(returncode=0)

    with (
        patch.object(runner, "get_accelerator", lambda: device),
        patch.object(runner.subprocess, "Popen", start),
        patch.object(runner, "fetch_hostfile", lambda _: {}),
    ):
        runner.main(script[1:])
    (encoded,) = (each for each in started[0] if each.startswith("--world_info="))
    world = json.loads(base64.urlsafe_b64decode(encoded.partition("=")[2]))
    assert world == {"localhost": chosen}


def _split(*, adapted: bool) -> str:
    import deepspeed

    deepspeed_groups()
    model = llama(num_attention_heads=4, num_key_value_heads=4).to(torch.bfloat16)
    if adapted:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
        "optimizer": {"type": "AdamW", "params": {"torch_adam": True, "lr": 1e-4}},
        "tensor_parallel": {"autotp_size": 2},
        "gradient_clipping": 1.0,
    }
    trained = [each for each in model.parameters() if each.requires_grad]
    deepspeed.initialize(model=model, config=config, model_parameters=trained)
    return "started"


@pytest.mark.parametrize(("adapted", "said"), [(True, "KeyError: Parameter"), (False, "started")])
def test_adapters_are_unknown_to_split_layers(adapted: bool, said: str) -> None:
    """tensor-parallel-beside-adapters"""
    assert said in str(apart(partial(_split, adapted=adapted), world=2))
