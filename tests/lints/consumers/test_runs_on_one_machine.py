"""What rules say of runs that go on as they are written: on this machine, in a few processes."""

import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

import pytest
import yaml

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent)]

from apart import apart, load_engine, without_shared_memory  # noqa: E402
from programs import example  # noqa: E402
from test_launchers import script  # noqa: E402
from test_started import arguments_of, trainer  # noqa: E402

torch = pytest.importorskip("torch")
for needed in ("deepspeed", "transformers", "accelerate"):
    pytest.importorskip(needed)

pytestmark = pytest.mark.usefixtures("own_environment")


# ── several processes ────────────────────────────────────────────────────────────────────────────


_SECONDS = 100


def _rank(work: Callable[[int], Any], rank: int, folder: str, told: Any, ended: Any) -> None:
    place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_SIZE": "2"}
    os.environ.update(place, DS_ACCELERATOR="cpu")
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=_SECONDS),
    )
    try:
        told.put((rank, work(rank)))
    except Exception as fault:  # noqa: BLE001  what it ends with is the answer
        told.put((rank, f"{type(fault).__name__}: {fault}"))
    ended.wait(_SECONDS)  # a process that has left its group is not waited for
    told.close()
    told.join_thread()
    os._exit(0)


def both(work: Callable[[int], Any], folder: Path) -> list[Any]:
    """What two processes of one group come to."""
    fork = multiprocessing.get_context("fork")
    told, ended = fork.Queue(), fork.Event()
    given = [(work, rank, str(folder), told, ended) for rank in range(2)]
    processes = [fork.Process(target=_rank, args=each, daemon=True) for each in given]
    for each in processes:
        each.start()
    found = dict(told.get(timeout=_SECONDS) for _ in processes)
    ended.set()
    for each in processes:
        each.join()
    return [found[0], found[1]]


def _step(rank: int) -> float:
    """How long the backward pass of a process takes, of which the second begins it later."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    loss = model(torch.ones(1, 4)).sum()
    torch.distributed.barrier()
    start = time.monotonic()
    time.sleep(rank * 0.5)
    loss.backward()
    return time.monotonic() - start


def test_each_step_waits_for_the_slowest(tmp_path: Path) -> None:
    """unequal-devices"""
    fast, _ = both(_step, tmp_path)
    assert fast >= 0.25  # half of what the other sleeps: its clock may begin a little later


@pytest.mark.parametrize("level", ["OFF", "DETAIL"])
def test_collectives_are_checked_by_further_ones(level: str) -> None:
    """debugging-left-on"""
    assert "TORCH_DISTRIBUTED_DEBUG=DETAIL" in script("debugging-left-on", 1)
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = level
    torch.distributed.set_debug_level_from_env()
    try:
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        group = torch.distributed.distributed_c10d._get_default_group()
        kind = type(group._get_backend(torch.device("cpu"))).__name__
        torch.distributed.destroy_process_group()
    finally:
        os.environ.pop("TORCH_DISTRIBUTED_DEBUG")
        torch.distributed.set_debug_level_from_env()
    assert kind == {"OFF": "ProcessGroupGloo", "DETAIL": "_ProcessGroupWrapper"}[level]


def _experts(leaf: bool) -> Callable[[int], str]:
    """A step of a block of two experts at stage 3, of which the first rank chooses both."""

    def work(rank: int) -> str:
        import deepspeed
        import deepspeed.comm

        class Block(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.experts = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(2))

            def forward(self, x: Any, count: int) -> Any:
                return sum(each(x) for each in self.experts[:count])

        deepspeed.comm.init_distributed("gloo", verbose=False)
        block = Block()
        if leaf:
            deepspeed.utils.set_z3_leaf_modules(block, [Block])
        small = {"stage": 3, "stage3_param_persistence_threshold": 0}
        engine, *_ = deepspeed.initialize(
            model=block,
            optimizer=torch.optim.SGD(block.parameters(), lr=0.1),
            config={
                "train_micro_batch_size_per_gpu": 1,
                "zero_optimization": small,
                "zero_allow_untested_optimizer": True,
            },
        )
        torch.distributed.barrier()
        torch.distributed.distributed_c10d._set_pg_timeout(timedelta(seconds=2))
        engine(torch.ones(1, 64), 2 - rank)
        return "computed"

    return work


@pytest.mark.parametrize("leaf", [True, False])
def test_experts_are_gathered_by_all_ranks_together(leaf: bool, tmp_path: Path) -> None:
    """experts-are-no-leaf"""
    load_engine()
    without_shared_memory()
    first, second = both(_experts(leaf), tmp_path)
    assert (first == "computed") is leaf
    assert leaf or "Timed out waiting" in first, second


# ── the trainer ──────────────────────────────────────────────────────────────────────────────────


def _begun(resumes: bool) -> int:
    """The step that a second run of a command begins with, in the directory of the first."""
    said = {"save_steps": 2, "max_steps": 4, "report_to": "none"}
    files = {"training_args.yaml": yaml.safe_dump(said)}
    trainer(files).train()
    again = trainer({"training_args.yaml": yaml.safe_dump({**said, "max_steps": 6})})
    begins: list[int] = []
    again.add_callback(_seen(begins))
    again.train(resume_from_checkpoint=resumes or None)
    return begins[0]


def _seen(begins: list[int]) -> Any:
    import transformers

    class Seen(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, _: Any, state: Any, __: Any, **___: Any) -> None:
            begins.append(state.global_step)

    return Seen()


def test_a_command_that_is_run_again_begins_again() -> None:
    """requeued-from-the-start: Slurm runs the script again, and its command does not resume"""
    assert "resume_from_checkpoint" not in script("requeued-from-the-start")
    assert apart(_begun, False) == 0
    assert apart(_begun, True) == 4


def _pushed(said: dict[str, Any]) -> int:
    """How often a checkpoint is pushed while it trains."""
    import transformers

    with (
        patch.object(transformers.Trainer, "init_hf_repo", lambda *_, **__: None),
        patch.object(transformers.Trainer, "_push_from_checkpoint", autospec=True) as pushed,
    ):
        trainer({"training_args.yaml": yaml.safe_dump(said)}).train()
    return int(pushed.call_count)


def test_what_is_never_saved_is_never_pushed() -> None:
    """hub-without-saves"""
    rule = "hub-without-saves"
    said = yaml.safe_load(example(rule, "good", 0).files["training_args.yaml"])
    assert apart(_pushed, arguments_of(rule, 1)) == 0
    assert apart(_pushed, said) > 0


def test_a_script_is_not_asked_to_train_unless_it_is_told() -> None:
    """training-not-asked-for: evaluation is asked for by a strategy, training by nothing else"""
    from transformers import HfArgumentParser, TrainingArguments

    def asked(kind: str, *more: str) -> tuple[bool, bool]:
        words = (
            script("training-not-asked-for", kind=kind).replace("\\\n", " ").split("run_clm.py")[1]
        )
        held, _ = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(
            [*words.split(), *more], return_remaining_strings=True
        )
        return held.do_train, held.do_eval

    assert asked("bad") == (False, False)
    assert asked("bad", "--eval_strategy", "epoch") == (False, True)
    assert asked("good") == (True, False)


def _kept(said: dict[str, Any]) -> str:
    """The token in the arguments that are saved beside a model."""
    held = trainer({"training_args.yaml": yaml.safe_dump({**said, "push_to_hub": False})})
    held.save_model("model")
    saved = torch.load("model/training_args.bin", weights_only=False)
    assert "<HUB_TOKEN>" in saved.to_dict().values()  # what is shown, and not what is kept
    return str(saved.hub_token)


def test_a_token_is_saved_beside_the_model() -> None:
    """secret-in-file"""
    said = arguments_of("secret-in-file")
    assert apart(_kept, said) == said["hub_token"]


# ── engines ──────────────────────────────────────────────────────────────────────────────────────


def _leaves(stage: int) -> list[bool]:
    """Whether a step's gathers, if there are any, know of leaf modules."""
    import deepspeed

    from tunec.targets.deepspeed.consumer.initialize import _surroundings

    seen: list[bool] = []
    with _surroundings(2, {}):
        block = torch.nn.Sequential(torch.nn.Linear(8, 8))
        deepspeed.utils.set_z3_leaf_modules(block, [torch.nn.Sequential])
        module = torch.nn.Sequential(block)
        looked = "deepspeed.runtime.zero.parameter_offload.z3_leaf_module"
        with patch(looked, lambda each: bool(seen.append(True)) or each is block):
            engine, *_ = deepspeed.initialize(
                model=module,
                optimizer=torch.optim.AdamW(module.parameters()),
                config={
                    "train_micro_batch_size_per_gpu": 1,
                    "zero_optimization": {"stage": stage},
                },
            )
            engine(torch.ones(1, 8))
    return seen


def test_a_leaf_is_asked_for_by_stage_3_alone() -> None:
    """leaf-modules-below-stage-3"""
    said = yaml.safe_load(example("leaf-modules-below-stage-3", "bad", 0).files["accelerate.yaml"])
    assert apart(_leaves, said["deepspeed_config"]["zero_stage"]) == []
    assert apart(_leaves, 3)


def _compared(debug: bool) -> int:
    """How many gathers of shapes a reduction makes, by accelerate."""
    from accelerate import DistributedType, PartialState
    from accelerate.utils import operations

    state = PartialState(cpu=True)
    state.distributed_type, state.debug = DistributedType.MULTI_CPU, debug
    with (
        patch.object(operations, "gather_object", side_effect=lambda each: each) as gathered,
        patch.object(operations, "_gpu_gather", lambda tensor: tensor),
    ):
        operations.gather(torch.ones(1))
    return int(gathered.call_count)


def test_accelerate_compares_shapes_before_it_gathers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """debugging-left-on"""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_multi_gpu_env

    monkeypatch.chdir(tmp_path)
    Path("accelerate.yaml").write_text(
        example("debugging-left-on", "bad", 2).files["accelerate.yaml"], "utf-8"
    )
    words = ["--config_file", "accelerate.yaml", "train.py"]
    held, *_ = _validate_launch_command(launch_command_parser().parse_args(words))
    assert prepare_multi_gpu_env(held)["ACCELERATE_DEBUG_MODE"] == "true"
    assert apart(_compared, True) == 1
    assert apart(_compared, False) == 0


def test_two_models_are_no_one_engine() -> None:
    """example-flags-refused-together: a text encoder that is trained is a second model"""
    from accelerate import Accelerator, DistributedType

    assert "--train_text_encoder" in script("example-flags-refused-together", 3)
    kind = DistributedType.DEEPSPEED
    held = MagicMock(distributed_type=kind, verify_device_map=lambda _: False)
    with pytest.raises(AssertionError, match="multiple models when using DeepSpeed"):
        Accelerator.prepare(held, torch.nn.Linear(1, 1), torch.nn.Linear(1, 1))
