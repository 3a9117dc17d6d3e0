"""What rules say of devices, by the programs' own checks: the hardware is only claimed."""

import os
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import pytest
import yaml

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from programs import FOLDER, example, option, refusal  # noqa: E402
from test_kernels import parsed  # noqa: E402
from test_launchers import run_with, script, shell  # noqa: E402
from test_older_trl import yaml_part  # noqa: E402
from test_scripts import asked  # noqa: E402

from tunec.compiler.consumers.sets import choose  # noqa: E402

torch = pytest.importorskip("torch")
for needed in ("deepspeed", "transformers", "accelerate"):
    pytest.importorskip(needed)

pytestmark = pytest.mark.usefixtures("own_environment")


def test_torch_warns_of_a_device_that_it_has_no_kernels_for() -> None:
    """device-newer-than-torch: of a wheel with the kernels that pytorch/pytorch#150733 lists"""
    kernels = ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"]
    with (
        patch("torch.version.cuda", "12.4"),
        patch("torch.cuda.get_arch_list", lambda: kernels),
        patch("torch.cuda.device_count", lambda: 1),
        patch("torch.cuda.get_device_name", lambda _: "NVIDIA GeForce RTX 5090"),
        patch("torch.cuda.get_device_capability", lambda _: (12, 0)),
        pytest.warns(UserWarning, match="sm_120 is not compatible with the current PyTorch"),
    ):
        torch.cuda._check_cubins()


def test_torch_names_the_builds_that_have_kernels_for_an_old_device() -> None:
    """device-older-than-torch: of the wheel on PyPI, which has kernels from 7.5 on"""
    kernels = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]
    with (
        patch("torch.version.cuda", "13.0"),
        patch("torch.cuda.get_arch_list", lambda: kernels),
        patch("torch.cuda.device_count", lambda: 1),
        patch("torch.cuda.get_device_name", lambda _: "Tesla P100-PCIE-16GB"),
        patch("torch.cuda.get_device_capability", lambda _: (6, 0)),
        pytest.warns(UserWarning, match="does not include kernels for this GPU(?s:.*)whl/cu126"),
    ):
        torch.cuda._check_capability()


def _taken(number: int, count: int) -> list[int]:
    """The device that each process of a node takes by accelerate, of so many."""
    from accelerate import DistributedType, PartialState

    taken = []
    with (
        patch("torch.cuda.device_count", lambda: count),
        patch("torch.cuda.set_device", lambda device: taken.append(device.index)),
    ):
        for rank in range(number):
            state = SimpleNamespace(
                device=None, distributed_type=DistributedType.MULTI_GPU, local_process_index=rank
            )
            PartialState.set_device(state)
    return taken


def accelerate_file(rule: str, kind: str, number: int = 0) -> dict[str, Any]:
    """The file of accelerate in an example."""
    found: dict[str, Any] = yaml.safe_load(example(rule, kind, number).files["accelerate.yaml"])
    return found


def test_two_processes_take_one_device() -> None:
    """more-processes-than-devices: which NCCL refuses; torch's own call has no such device"""
    rule = "more-processes-than-devices"
    assert _taken(accelerate_file(rule, "bad")["num_processes"], 4) == [0, 1, 2, 3] * 2
    assert _taken(accelerate_file(rule, "good")["num_processes"], 4) == [0, 1, 2, 3]


def test_a_job_sees_the_devices_that_it_was_given() -> None:
    """more-than-allocated: Slurm sets the variable to those of the job, torch counts them"""
    rule = "more-than-allocated"
    os.environ["CUDA_VISIBLE_DEVICES"] = "0,1,2,3"
    with patch("torch.cuda._raw_device_count_nvml", lambda: 8):
        given = int(torch.cuda._device_count_nvml())
    assert given == 4 < int(parsed(rule).nproc_per_node)
    assert len(set(_taken(accelerate_file(rule, "bad", 1)["num_processes"], given))) == given


def _joined(nodes: int) -> str:
    """What becomes of a meeting of so many nodes that one node comes to."""
    from torch.distributed.elastic.rendezvous import RendezvousParameters
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

    asked = RendezvousParameters(
        "c10d", "127.0.0.1:0", "run", nodes, nodes, is_host=True, join_timeout=1
    )
    backend, store = create_backend(asked)
    handler = create_handler(store, backend, asked)
    try:
        handler.next_rendezvous()
    except Exception as fault:  # noqa: BLE001  what it ends with is the answer
        return type(fault).__name__
    finally:
        handler.shutdown()
    return "met"


@shell
def test_the_first_node_waits_for_the_others(tmp_path: Path) -> None:
    """nodes-without-srun, more-than-allocated: a second here, ten minutes by default"""
    (told,) = run_with("torchrun", script("nodes-without-srun"), tmp_path)
    assert told[0].startswith("--nnodes 2 ")  # the script is run once, and so is its command
    assert _joined(2) == "RendezvousTimeoutError"
    assert _joined(1) == "met"


@shell
def test_srun_is_given_the_command(tmp_path: Path) -> None:
    """nodes-without-srun"""
    (told,) = run_with("srun", script("nodes-without-srun", kind="good"), tmp_path)
    assert told[0].startswith("torchrun --nnodes 2 ")


def _backend(said: str | None) -> str:
    """The backend of a process of several that has a device."""
    from accelerate import PartialState

    os.environ.update(LOCAL_RANK="0", WORLD_SIZE="8", RANK="0")
    with patch("torch.cuda.is_available", lambda: True):
        backend, kind = PartialState._prepare_backend(MagicMock(), False, False, said)
    assert str(kind) == "DistributedType.MULTI_GPU"
    return str(backend)


@pytest.mark.parametrize("kind", ["bad", "good"])
def test_a_backend_is_taken_as_it_is_written(kind: str) -> None:
    """gloo-between-devices"""
    said = yaml.safe_load(example("gloo-between-devices", kind, 0).files["training_args.yaml"])
    assert _backend(said["ddp_backend"]) == {"bad": "gloo", "good": "nccl"}[kind]
    assert _backend(None) == "nccl"


# ── vLLM beside TRL ──────────────────────────────────────────────────────────────────────────────


@cache
def served() -> list[Any]:
    """TRL 0.15.2 with the processes of the bad and the good example, of 8 devices."""
    rule = "no-device-left-for-vllm"
    questions = []
    for kind, processes in (("bad", 8), ("good", 7)):
        assert option(example(rule, kind, 0), "--world-size") == str(processes)
        said = yaml_part(kind, 0, rule, "grpo.yaml")
        counts = {"processes": processes, "devices": 8}
        questions.append({"verb": "serve", "said": said, **counts})
    beside = choose("transformers", "4.51.3").requirements
    pins = tuple("trl==0.15.2" if each.startswith("trl==") else each for each in beside)
    return asked(pins, "lints.consumers.older_trl_runs", questions, FOLDER)


def test_an_engine_takes_the_device_behind_those_that_train() -> None:
    """no-device-left-for-vllm"""
    without, with_one = served()
    assert "The requested device for vllm (cuda:8) is not available" in refusal(without)
    assert with_one == {"refused": None, "device": "cuda:7"}


# ── bitsandbytes ─────────────────────────────────────────────────────────────────────────────────


@cache
def products() -> list[Any]:
    """bitsandbytes with a device that it is told of, and with activations beyond fp16."""
    questions = [
        {"verb": "diagnose", "capability": [6, 0]},
        {"verb": "diagnose", "capability": [7, 5]},
        {"verb": "multiply", "dtype": "bfloat16", "largest": 1e5},
        {"verb": "multiply", "dtype": "bfloat16", "largest": 1e4},
    ]
    return asked(("bitsandbytes==0.50.2",), "lints.consumers.bitsandbytes_runs", questions, FOLDER)


def test_bitsandbytes_has_slow_products_of_8_bits_for_older_devices() -> None:
    """int8-without-hardware"""
    old, new, *_ = products()
    assert "Compute capability < 7.5 detected! Only slow 8-bit matmul is supported" in old["said"]
    assert "7.5 detected" not in new["said"]


def test_products_of_8_bits_are_made_of_fp16() -> None:
    """int8-products-in-fp16"""
    *_, beyond, within = products()
    assert "inputs will be cast from torch.bfloat16 to float16" in beyond["warned"]
    assert not beyond["finite"]
    assert within["finite"]
