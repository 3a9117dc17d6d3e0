"""Every example before the programs that read its files, in several of their releases.

Three releases of transformers stand for their time, each with the trl, peft and DeepSpeed of its
season (0.14.5, 0.18.9 and 0.19.8), and both releases of SimpleTuner.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import load_spec, with_settings
from tunec.compiler.requirements import Asked
from tunec.compiler.verify.cases import cases_of, distinct, specs_in
from tunec.compiler.verify.contract import Case
from tunec.compiler.verify.queries import verify
from tunec.targets.registry import REGISTRY

EXAMPLES = Path(__file__).parents[2] / "examples"
SPECS = [spec for folder in sorted(EXAMPLES.iterdir()) for spec in specs_in(folder)]
RELEASES = {
    "huggingface": ("4.40", "4.57", "5.23"),
    "simpletuner": ("3.1.6", "4.10"),
    "trl": ("0.12", "0.27", "1.16"),
    "accelerate": ("0.30", "1.15"),
    "glm4": ("4.40", "5.23"),
    "minicpm-v": ("4.40", "4.51"),
}
ALSO = {
    "five-lines": {
        **dict.fromkeys(("trl", "accelerate", "slurm", "skypilot"), ()),
        "kubeflow": ("job.volume=mine",),
    },
    "glm-4v-9b-lora": {"glm4": ()},
    "minicpm-v-2_6-lora": {"minicpm-v": ()},
    "llama-3.2-3b-mixed-gpus": {"llama-cookbook": ("run={script: null, arguments: []}",)},
}
"""Targets that the spec does not name and that can say its plan, with what they need set."""


@cache
def cases(spec: Path) -> tuple[Case, ...]:
    """The cases of an example: for each target that it names, or the everyday ones."""
    return tuple(read_cases(spec))


def read_cases(spec: Path) -> Iterator[Case]:
    read = load_spec(spec, targets=REGISTRY.names())
    names = read.spec.targets if read.spec else ()
    further = also(spec)
    for name in (*(names or ("deepspeed", "huggingface", "launch")), *further):
        loaded = with_settings(read, further.get(name, ()))
        plain, _, version = name.partition("@")
        for release in (version,) if version else RELEASES.get(plain, ("",)):
            asked = REGISTRY.resolve(f"{plain}@{release}".rstrip("@"), loaded.spec.software)
            yield from compiled(loaded, asked)


def also(spec: Path) -> Mapping[str, tuple[str, ...]]:
    """Of one spec of each example, so that the programs are asked once."""
    return ALSO.get(spec.parent.name, {}) if spec.stem == "spec" else {}


def compiled(loaded, asked: Asked) -> list[Case]:
    """Nothing where the example is meant to fail, or the release has no word for it."""
    result = compile_spec(loaded, [asked], repairing=False)
    return cases_of(result, [asked]) if result.ok and asked[0].verify else []


@pytest.fixture(scope="module")
def checks():
    found = verify(distinct([case for spec in SPECS for case in cases(spec)]))
    return {case: [c for c in found if c.spec == case] for case in {c.spec for c in found}}


RESOLVES_NOTHING = {"shellcheck"}
"""Programs that judge a file and resolve no value of it."""


def test_examples_are_many():
    assert len(SPECS) >= 20
    assert sum(1 for spec in SPECS for _ in cases(spec)) >= 60


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_program_resolves_what_was_planned(checks, spec):
    names = {case.spec for case in cases(spec)}
    found = [check for name in names for check in checks[name]]
    assert [each for each in found if each.status in ("differs", "refused")] == []
    reasons = {each.reason for each in found if each.status == "unchecked"}
    if reasons:
        pytest.skip(f"not checked: {'; '.join(sorted(reasons))}")
    assert {each.program for each in found if not each.compared} <= RESOLVES_NOTHING


def test_each_release_was_asked(checks):
    asked = {check.consumer for found in checks.values() for check in found}
    for consumer in ("transformers@4.40.2", "transformers@4.57.6", "transformers@5.23.0"):
        assert consumer in asked
    assert {"deepspeed@0.14.5", "deepspeed@0.18.9", "deepspeed@0.19.8"} <= asked
    assert {"simpletuner@3.1.6", "simpletuner@4.10.1"} <= asked
    assert {"trl@0.12.2", "trl@0.27.2", "trl@1.16.0"} <= asked
    assert {"accelerate@0.30.1", "accelerate@1.15.0", "llama-cookbook@0.0.5.post1"} <= asked
