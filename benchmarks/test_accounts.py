"""Micro benchmarks: a model's parts, and what the search calls most: the accounts, and itself.

Each round begins with every cache of the analyses and of the search empty, as for a new problem.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tunec.compiler.analyses.architecture import derive
from tunec.compiler.analyses.memory.account import account, largest_micro_batch
from tunec.compiler.analyses.memory.workload import Layout
from tunec.compiler.analyses.time.account import step_time
from tunec.compiler.driver import run_passes
from tunec.compiler.frontend.load import load_spec
from tunec.compiler.passes.fit.fit import problem_of
from tunec.compiler.passes.fit.problem import Problem
from tunec.compiler.passes.fit.search import search
from tunec.compiler.resolve import resolve
from tunec.schemas.caches import clear
from tunec.schemas.models.catalogue import card

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ("five-lines", "minicpm-v-2_6-lora", "glm-4v-9b-lora")
ROUNDS = 200


@pytest.fixture(params=EXAMPLES)
def problem(request: pytest.FixtureRequest) -> Problem:
    loaded = load_spec(ROOT / "examples" / request.param / "spec.yaml")
    assert loaded.spec is not None
    facts = resolve(loaded.spec, loaded.base)
    draft, _, _ = run_passes(facts)
    return problem_of(facts, draft)


@pytest.fixture
def layout(problem: Problem) -> Layout:
    best = search(problem).best
    assert best is not None
    return best.layout


def cold(benchmark: BenchmarkFixture, run: Callable[[], Any]) -> Any:
    return benchmark.pedantic(run, setup=clear, rounds=ROUNDS)  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("name", ["llama-3.1-8b", "glm-4v-9b", "stable-diffusion-v1-5"])
def test_architecture(benchmark: BenchmarkFixture, name: str) -> None:
    config = card(name).config
    assert benchmark(derive, config) is not None


def test_memory(benchmark: BenchmarkFixture, problem: Problem, layout: Layout) -> None:
    assert cold(benchmark, lambda: account(problem.workload, layout).required_bytes) > 0


def test_largest_micro_batch(benchmark: BenchmarkFixture, problem: Problem, layout: Layout) -> None:
    workload, budget = problem.workload, problem.budget
    assert cold(benchmark, lambda: largest_micro_batch(workload, layout, budget)) > 0


def test_time(benchmark: BenchmarkFixture, problem: Problem, layout: Layout) -> None:
    found = cold(benchmark, lambda: step_time(problem.workload, layout, problem.machine))
    assert found.step_seconds > 0


def test_search(benchmark: BenchmarkFixture, problem: Problem) -> None:
    assert cold(benchmark, lambda: search(problem)).best is not None
