"""Starts a trainer with a probe in it: `python watch/watch.py trl.scripts.sft --config ...`.

The probe writes a line for each step to `run.jsonl` beside this file: seconds, loss, memory, loss
scale, gradient norm. It stops the run at once if the loss is not finite, or if one of the first
steps uses more memory than the plan allows. `tunec calibrate` reads the file.

The probe is added to the callbacks that transformers' Trainer starts with (transformers 4.40 to
5.23 trainer.py `DEFAULT_CALLBACKS`), and wraps `Trainer.training_step` to see the loss of each
micro batch: the losses that the Trainer logs have non-finite values filtered out
(`logging_nan_inf_filter`).
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
"""Steps in which memory is compared with the plan: after them all buffers are allocated."""
STEPS = 2
"""The number of steps of a short run."""
SMOKE = os.environ.get("TUNEC_SMOKE", "")
"""The phase of a short run: "first", or "resumed" from its first checkpoint; else empty."""
RANK = int(os.environ.get("RANK", "0"))


class Records:
    """A file of JSON lines, closed after each: all of rank 0, and the last ones of other ranks."""

    def __init__(self, folder: Path) -> None:
        name = "run.jsonl" if RANK == 0 else f"rank-{RANK}.jsonl"
        self.path = folder / name

    def write(self, event: str, **said: Any) -> None:
        """Write a line; ranks other than 0 only write "stop" and "end"."""
        if RANK and event not in ("stop", "end"):
            return
        known = {name: value for name, value in said.items() if value is not None}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, **known}) + "\n")


def memory() -> dict[str, int | None]:
    """Peak bytes of the allocator and of this process's RAM, and bytes of the device in use now."""
    import torch

    found: dict[str, int | None] = {"host": host_bytes()}
    if torch.cuda.is_available():
        free, every = torch.cuda.mem_get_info()
        found["allocated"] = torch.cuda.max_memory_allocated()
        found["reserved"] = torch.cuda.max_memory_reserved()
        found["used"] = every - free
    return found


def device_name() -> str:
    """The name of this rank's device; `cpu` if torch sees no GPU."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def host_bytes() -> int | None:
    """The peak RAM of this process in bytes; None if the system does not report it."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def loss_scale(trainer: Any) -> float | None:
    """The factor by which losses are multiplied in fp16; None if they are not scaled."""
    scaler = getattr(trainer.accelerator, "scaler", None)
    if scaler is not None:
        return float(scaler.get_scale())
    engine = getattr(trainer, "deepspeed", None)
    scale = getattr(getattr(engine, "optimizer", None), "cur_scale", None)
    return None if scale is None else float(scale)


class Watch:
    """The probe's state; there is one for each process."""

    def __init__(self, plan: dict[str, Any], records: Records) -> None:
        self.allowed: int = plan["expected"]["allowed"]
        self.records = records
        self.trainer: Any = None
        self.begun = 0.0
        self.done = 0
        self.losses: list[Any] = []

    def saw(self, trainer: Any, loss: Any) -> None:
        """Take the loss of a micro batch, without waiting for the device."""
        self.trainer = trainer
        self.losses.append(loss.detach().float())

    def begins(self, at: int) -> None:
        """Record that training starts, or resumes after step `at`."""
        self.begun = time.perf_counter()
        self.records.write("train", step=at, device=device_name())

    def steps(self, at: int) -> None:
        """Record the end of a step, and stop the run if it cannot continue."""
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
        """Record the end of an evaluation or checkpoint; its time is not part of the next step."""
        now = time.perf_counter()
        self.records.write(event, step=at, seconds=now - self.begun, **said)
        self.begun = now

    def stop(self, at: int, why: str) -> None:
        """End this process; the launcher ends the others."""
        self.records.write("stop", step=at, why=why)
        raise SystemExit(f"tunec stopped the run after step {at}: {why}")


def told(size: int) -> str:
    """A number of bytes as text."""
    return f"{size / 2**30:.1f} GiB"


def finite(logs: dict[str, Any]) -> dict[str, float | str]:
    """The Trainer's logs as plain numbers."""
    found: dict[str, float | str] = {}
    for name, value in logs.items():
        try:
            number = float(value)
        except (TypeError, ValueError):
            continue
        found[name] = number if abs(number) < float("inf") else str(number)
    return found


def install(watch: Watch) -> None:
    """Add the probe to every Trainer that is made from now on."""
    from transformers import TrainerCallback, trainer

    class Probe(TrainerCallback):  # type: ignore[misc]
        """Reports the Trainer's events to the watch."""

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
    """Make every Trainer use the longest samples, and resume in the "resumed" phase."""
    as_written = trainer.train

    def train(self: Any, *words: Any, **options: Any) -> Any:
        shorten(self)
        if SMOKE == "resumed":
            words, options = (), {**options}
            options["resume_from_checkpoint"] = str(Path(self.args.output_dir) / "checkpoint-1")
        return as_written(self, *words, **options)

    trainer.train = train


def shorten(trainer: Any) -> None:
    """Keep the longest samples for two steps, and for one batch of evaluation."""
    args = trainer.args
    ranks = max(args.world_size, 1)
    batch = args.per_device_train_batch_size * args.gradient_accumulation_steps * ranks
    trainer.train_dataset = longest(trainer.train_dataset, STEPS * batch)
    if hasattr(trainer.eval_dataset, "__len__") and not isinstance(trainer.eval_dataset, dict):
        number = args.per_device_eval_batch_size * ranks
        trainer.eval_dataset = longest(trainer.eval_dataset, number)


def longest(rows: Any, number: int) -> Any:
    """The `number` longest rows, the longest first; rows are repeated if there are too few."""
    if not hasattr(rows, "__len__") or not len(rows):
        return rows  # a stream: its first rows are taken
    order = sorted(range(len(rows)), key=lambda at: -length(rows[at]))
    chosen = [order[at % len(order)] for at in range(number)]
    if hasattr(rows, "select"):
        return rows.select(chosen)
    from torch.utils.data import Subset

    return Subset(rows, chosen)


def length(row: Any) -> int:
    """The tokens of a row, or its characters if it is not tokenized yet."""
    if not isinstance(row, dict):
        return 0
    if "input_ids" in row:
        return len(row["input_ids"])
    return sum(len(str(each)) for each in row.values() if isinstance(each, (str, list, dict)))


def versions() -> dict[str, str]:
    """The installed releases of the packages in use."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def start(words: list[str]) -> None:
    """Run a module or a script as Python would, with its own arguments."""
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
    """Read the plan, install the probe, and start the trainer."""
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
