"""Batches, steps, warm-ups and saves of a plan are those that SimpleTuner's own code counts."""

import json
import random
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

import tunec
from tunec.compiler.consumers.environments import prepare
from tunec.compiler.consumers.queries import ask
from tunec.compiler.consumers.sets import choose
from tunec.targets.simpletuner import schema

VERSIONS = ("3.1.6", "4.10.1")
RUNS = 60


@dataclass(frozen=True)
class Drawn:
    """A run: its folders, each of pictures of one shape, and how its batches are made."""

    folders: tuple[tuple[int, int], ...]
    """Pictures of a folder, and how often an epoch sees each."""
    micro: int
    accumulation: int
    processes: int
    epochs: int | None
    steps: int
    warmup: int
    save: int

    @property
    def samples(self) -> int:
        """Pictures that an epoch sees."""
        return sum(count * times for count, times in self.folders)

    @property
    def batch(self) -> int:
        """Pictures of a step."""
        return self.micro * self.accumulation * self.processes

    @property
    def spec(self) -> dict[str, Any]:
        """What is asked of tunec."""
        length = {"epochs": self.epochs} if self.epochs else {"steps": self.steps}
        parts = [
            {"path": f"folder-{at}", "times": times} for at, (_, times) in enumerate(self.folders)
        ]
        return {
            "tunec": 1,
            "model": "flux.1-dev",
            "method": "lora",
            "hardware": f"a100-80g-x{self.processes}",
            "data": {"train": parts, "samples": self.samples, "resolution": 512},
            "batch": {"global": self.batch},
            "train": {**length, "schedule": "constant_with_warmup", "warmup": self.warmup},
            "pin": {"batch.micro": self.micro, "schedule.save_steps": self.save},
            "engine": "ddp" if self.processes > 1 else "none",
        }


def drawn(seed: int, folders: int) -> Drawn:
    """A run of so many folders, none of which is too small for a batch."""
    of = random.Random(seed)  # noqa: S311  sizes, not secrets
    micro, accumulation, processes = of.randint(1, 4), of.randint(1, 4), of.choice((1, 2, 3, 4, 8))
    batch = micro * accumulation * processes
    return Drawn(
        tuple((of.randint(batch, 5 * batch + 7), of.randint(1, 4)) for _ in range(folders)),
        micro,
        accumulation,
        processes,
        of.choice((None, 1, 2, 5)),
        of.randint(20, 300),
        of.randint(0, 9),
        of.randint(1, 15),
    )


DRAWN = (
    *(drawn(seed, 1) for seed in range(RUNS)),
    *(drawn(seed, seed % 3 + 2) for seed in range(RUNS, RUNS + RUNS // 2)),
)


@cache
def compiled(run: Drawn, version: str) -> Any:
    result = tunec.compile(run.spec, targets=[f"simpletuner@{version}"])
    assert result.ok, [each.message for each in result.diagnostics]
    return result


def question(run: Drawn, version: str) -> dict[str, Any]:
    """The files as they are compiled, and what their folders hold."""
    artifacts = compiled(run, version).artifacts["simpletuner"]
    data = json.loads(next(each.text for each in artifacts if "multidata" in each.name))
    trained = (each for each in data if each["dataset_type"] == "image")
    sets = [
        {"buckets": [count], "repeats": each.get("repeats", 0)}
        for each, (count, _) in zip(trained, run.folders, strict=True)
    ]
    return {
        "verb": "count",
        "backend": "json",
        "files": {each.name: each.text for each in artifacts},
        "processes": run.processes,
        "sets": sets,
    }


@cache
def counted(version: str) -> dict[Drawn, Any]:
    """What the release counts of each run, in one process."""
    questions = [question(run, version) for run in DRAWN]
    found = ask(
        prepare(choose("simpletuner", version).requirements),
        schema.CONSUMER,
        questions,
        schema.SECONDS,
    )
    for answer in found:
        assert "error" not in answer, answer
    return dict(zip(DRAWN, [each["ranks"] for each in found], strict=True))


@pytest.fixture(params=VERSIONS)
def version(request):
    return request.param


def taken(rank: dict[str, Any], run: Drawn) -> int:
    """The steps that the loop takes: an accumulation goes on in the next epoch."""
    whole = rank["epochs"] * rank["batches"] // run.accumulation
    return min(rank["steps"], whole) if rank["by_epochs"] else rank["steps"]


def test_steps_are_those_of_the_real_buckets(version):
    for run, ranks in counted(version).items():
        schedule, first = compiled(run, version).planned.plan.schedule, ranks[0]
        steps = schedule.steps or schedule.estimated_steps
        assert {rank["steps"] for rank in ranks} == {first["steps"]}, run
        assert first["global"] == compiled(run, version).planned.plan.batch.global_, run
        if len(run.folders) == 1 and run.folders[0][1] == 1:
            assert taken(first, run) == steps, run
        else:
            tails = len(run.folders) * max(times for _, times in run.folders)
            assert abs(taken(first, run) - steps) <= tails * (run.epochs or 0), run
        assert run.epochs or taken(first, run) == run.steps, run


def test_saves_are_as_planned(version):
    for run, ranks in counted(version).items():
        assert {rank["saves"] for rank in ranks} == {run.save}
