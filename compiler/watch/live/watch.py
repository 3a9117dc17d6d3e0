"""Starts a trainer with a probe in it: `python watch/watch.py trl.scripts.sft --config ...`.

The probe writes a line for each step to `run.jsonl` beside this file: seconds, loss, memory, loss
scale, gradient norm. It stops the run at once where the loss is no number, and where one of the
first steps takes more memory than the plan allows. `tunec calibrate` reads what it writes.

It is added to the callbacks that transformers' Trainer begins with (transformers 4.40 to 5.23
trainer.py `DEFAULT_CALLBACKS`), and wraps `Trainer.training_step` for the loss of each micro batch:
what the Trainer logs has losses that are no number filtered out (`logging_nan_inf_filter`).
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "deepspeed", "bitsandbytes")
FIRST = 3
"""Steps in which memory is compared with the plan: all buffers are there after them."""
STEPS = 2
"""Of a short run."""
SMOKE = os.environ.get("TUNEC_SMOKE", "")
"""The phase of a short run: first, or resumed from its first checkpoint."""
RANK = int(os.environ.get("RANK", "0"))


class Records:
    """Lines of JSON, each on the disk before the next: those of rank 0, and how others end."""

    def __init__(self, folder: Path) -> None:
        name = "run.jsonl" if RANK == 0 else f"rank-{RANK}.jsonl"
        self.path = folder / name

    def write(self, event: str, **said: Any) -> None:
        """A line, unless it is one of the usual ones of a rank but the first."""
        if RANK and event not in ("stop", "end"):
            return
        known = {name: value for name, value in said.items() if value is not None}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, **known}) + "\n")


def memory() -> dict[str, int | None]:
    """Bytes of this rank's device, and of the host's RAM in this process, at their highest."""
    import torch

    found: dict[str, int | None] = {"host": host_bytes()}
    if torch.cuda.is_available():
        free, every = torch.cuda.mem_get_info()
        found["allocated"] = torch.cuda.max_memory_allocated()
        found["reserved"] = torch.cuda.max_memory_reserved()
        found["used"] = every - free
    return found


def device_name() -> str:
    """What this rank's device calls itself; `cpu` where torch sees no other."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def host_bytes() -> int | None:
    """The most RAM that this process has had; None where the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def loss_scale(trainer: Any) -> float | None:
    """What losses are multiplied by in fp16; None where nothing scales them."""
    scaler = getattr(trainer.accelerator, "scaler", None)
    if scaler is not None:
        return float(scaler.get_scale())
    engine = getattr(trainer, "deepspeed", None)
    scale = getattr(getattr(engine, "optimizer", None), "cur_scale", None)
    return None if scale is None else float(scale)


class Watch:
    """What the probe knows of the run; one for each process."""

    def __init__(self, plan: dict[str, Any], records: Records) -> None:
        self.allowed: int = plan["expected"]["allowed"]
        self.records = records
        self.trainer: Any = None
        self.begun = 0.0
        self.done = 0
        self.losses: list[Any] = []

    def saw(self, trainer: Any, loss: Any) -> None:
        """The loss of a micro batch; nothing waits for the device here."""
        self.trainer = trainer
        self.losses.append(loss.detach().float())

    def begins(self, at: int) -> None:
        """Training begins, or goes on after step `at`."""
        self.begun = time.perf_counter()
        self.records.write("train", step=at, device=device_name())

    def steps(self, at: int) -> None:
        """A step has ended: write it down, and stop the run where it cannot go on."""
        loss = float(sum(self.losses)) if self.losses else None  # waits for the device
        number = len(self.losses)
        self.losses = []
        now = time.perf_counter()
        taken = memory()
        self.records.write(
            "step",
            step=at,
            seconds=now - self.begun,
            loss=loss if loss is None or abs(loss) < float("inf") else str(loss),
            micro_batches=number,
            scale=loss_scale(self.trainer) if self.trainer is not None else None,
            **taken,
        )
        self.done += 1
        if loss is not None and not abs(loss) < float("inf"):
            self.stop(at, f"the loss is {loss}")
        allocated = taken.get("allocated")
        if self.done <= FIRST and allocated is not None and allocated > self.allowed:
            self.stop(at, f"{told(allocated)} of tensors, and the plan allows {told(self.allowed)}")
        self.begun = time.perf_counter()

    def goes_on(self, event: str, at: int, said: dict[str, Any]) -> None:
        """An evaluation or a checkpoint is through: it is no part of the next step."""
        now = time.perf_counter()
        self.records.write(event, step=at, seconds=now - self.begun, **said)
        self.begun = now

    def stop(self, at: int, why: str) -> None:
        """End this process: the launcher ends the others."""
        self.records.write("stop", step=at, why=why)
        raise SystemExit(f"tunec stopped the run after step {at}: {why}")


def told(size: int) -> str:
    """Bytes for people."""
    return f"{size / 2**30:.1f} GiB"


def finite(logs: dict[str, Any]) -> dict[str, float | str]:
    """What the Trainer logs, as plain numbers."""
    found: dict[str, float | str] = {}
    for name, value in logs.items():
        try:
            number = float(value)
        except (TypeError, ValueError):
            continue
        found[name] = number if abs(number) < float("inf") else str(number)
    return found


def install(watch: Watch) -> None:
    """Put the probe into every Trainer that is made from now on."""
    from transformers import TrainerCallback, trainer

    class Probe(TrainerCallback):  # type: ignore[misc]
        """Tells the watch what the Trainer does."""

        def on_train_begin(self, _args: Any, state: Any, *_: Any, **__: Any) -> None:
            watch.begins(state.global_step)

        def on_step_end(self, _args: Any, state: Any, *_: Any, **__: Any) -> None:
            watch.steps(state.global_step)

        def on_log(self, _args: Any, state: Any, *_: Any, **said: Any) -> None:
            watch.records.write("log", step=state.global_step, **finite(said.get("logs") or {}))

        def on_evaluate(self, _args: Any, state: Any, *_: Any, **said: Any) -> None:
            watch.goes_on("evaluate", state.global_step, finite(said.get("metrics") or {}))

        def on_save(self, _args: Any, state: Any, *_: Any, **__: Any) -> None:
            watch.goes_on("save", state.global_step, {})

        def on_train_end(self, _args: Any, state: Any, *_: Any, **__: Any) -> None:
            watch.records.write("end", step=state.global_step, **memory())

    trainer.DEFAULT_CALLBACKS.append(Probe)
    if SMOKE:
        shorten_all(trainer.Trainer)
    as_written = trainer.Trainer.training_step

    def training_step(self: Any, *words: Any, **options: Any) -> Any:
        loss = as_written(self, *words, **options)
        watch.saw(self, loss)
        return loss

    trainer.Trainer.training_step = training_step


def shorten_all(trainer: Any) -> None:
    """Let every Trainer take the longest samples alone, and go on from the first checkpoint."""
    as_written = trainer.train

    def train(self: Any, *words: Any, **options: Any) -> Any:
        shorten(self)
        if SMOKE == "resumed":
            words, options = (), {**options}
            options["resume_from_checkpoint"] = str(Path(self.args.output_dir) / "checkpoint-1")
        return as_written(self, *words, **options)

    trainer.train = train


def shorten(trainer: Any) -> None:
    """The longest samples for two steps, and for one batch of evaluation."""
    args = trainer.args
    ranks = max(args.world_size, 1)
    batch = args.per_device_train_batch_size * args.gradient_accumulation_steps * ranks
    trainer.train_dataset = longest(trainer.train_dataset, STEPS * batch)
    if hasattr(trainer.eval_dataset, "__len__") and not isinstance(trainer.eval_dataset, dict):
        number = args.per_device_eval_batch_size * ranks
        trainer.eval_dataset = longest(trainer.eval_dataset, number)


def longest(rows: Any, number: int) -> Any:
    """So many rows, the longest first; where there are fewer, some of them again."""
    if not hasattr(rows, "__len__") or not len(rows):
        return rows  # a stream: its first rows are taken
    order = sorted(range(len(rows)), key=lambda at: -length(rows[at]))
    chosen = [order[at % len(order)] for at in range(number)]
    if hasattr(rows, "select"):
        return rows.select(chosen)
    from torch.utils.data import Subset

    return Subset(rows, chosen)


def length(row: Any) -> int:
    """Tokens of a row, or where it has none yet, characters."""
    if not isinstance(row, dict):
        return 0
    if "input_ids" in row:
        return len(row["input_ids"])
    return sum(len(str(each)) for each in row.values() if isinstance(each, (str, list, dict)))


def versions() -> dict[str, str]:
    """Releases of what runs."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def start(words: list[str]) -> None:
    """Run a module or a script as Python would, with its own words."""
    flags = [each for each in words if each.startswith("--local_rank=")]  # of DeepSpeed's launcher
    program, *rest = [each for each in words if each not in flags]
    sys.argv = [program, *flags, *rest]
    if program.endswith(".py"):
        sys.path[0] = str(Path(program).resolve().parent)
        runpy.run_path(program, run_name="__main__")
    else:
        sys.path[0] = str(Path.cwd())
        runpy.run_module(program, run_name="__main__", alter_sys=True)


def main() -> None:
    """Read the plan, put the probe in, and start the trainer."""
    plan = json.loads((HERE / "plan.json").read_text("utf-8"))
    records = Records(HERE)
    records.write(
        "start",
        when=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        versions=versions(),
        name=plan["expected"]["name"],
        smoke=SMOKE or None,
        ranks=int(os.environ.get("WORLD_SIZE", "1")),
    )
    install(Watch(plan, records))
    start(sys.argv[1:])


if __name__ == "__main__":
    main()
