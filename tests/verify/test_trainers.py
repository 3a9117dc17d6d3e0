"""Files for trainers before their own programs, each in several releases.

A program is asked what it makes of the emitted files before it loads a model, told of the planned
devices, in an environment with the packages that its release takes: `targets/NAME/verify.py` names
its functions. OpenRLHF's own configuration is then asked of DeepSpeed, with which an engine starts.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from functools import cache

import pytest
from tests.verify.edited_runs import faults
from tests.verify.trainer_specs import assert_resolved, checked, specs_of, with_faults

from tunec.compiler.verify.queries import verify
from tunec.targets.llamafactory.verify import PARSER
from tunec.targets.ms_swift import packages as ms_swift
from tunec.targets.ms_swift.verify import PARSER as SWIFT
from tunec.targets.nemo_automodel import packages as nemo_automodel
from tunec.targets.nemo_automodel.verify import RECIPE
from tunec.targets.openrlhf import packages as openrlhf
from tunec.targets.unsloth.verify import COMMAND
from tunec.targets.verl import packages as verl
from tunec.targets.verl.verify import CRITICISING, REWARDING, TRAINER


@dataclass(frozen=True)
class Trainer:
    """The releases that are asked, and the fewest values of a spec that each program resolves."""

    target: str
    releases: tuple[str, ...]
    programs: Mapping[str, int]
    without: Mapping[str, Set[str]] = field(default_factory=dict)
    """The specs that are not asked of a release."""

    def specs(self, name: str, release: str) -> set[str]:
        return set(specs_of(name)) - self.without.get(release, set())


SUPERVISED, PREFERENCE = "openrlhf.cli.train_sft", "openrlhf.cli.train_dpo"
SEEN = {name for name, spec in specs_of("unsloth").items() if "images" in spec["data"]}
SHARDED = {name for name, spec in specs_of("ms_swift").items() if spec.get("engine") == "fsdp"}
TRAINERS = {
    # liger's plugin imports more than the validator in 0.13.2, and is left out silently
    "axolotl": Trainer(
        *("axolotl", ("0.13.2", "0.16.1", "0.19.0"), {"axolotl validate_config": 31}),
        {"0.13.2": {"liger"}},
    ),
    # 0.9.4 refuses to pack beside the transformers that goes with it, and prepares no reference
    "llamafactory": Trainer(
        *("llamafactory", ("0.9.3", "0.9.4", "0.9.5")),
        {PARSER: 30, "llamafactory get_dataset_list": 2},
        {"0.9.4": {"packed", "dpo-full"}},
    ),
    # before 4.6 it puts whole weights on each device, so no plan shards them by FSDP
    "ms_swift": Trainer(
        *("ms-swift", ms_swift.RELEASES, {SWIFT: 46}),
        dict.fromkeys(ms_swift.RELEASES[:-1], SHARDED),
    ),
    # 0.5.0 recomputes otherwise
    "nemo_automodel": Trainer(
        "nemo-automodel", nemo_automodel.RELEASES, {RECIPE: 38}, {"0.5.0": {"recomputed"}}
    ),
    # DeepSpeed 0.19.1, which 0.10.4 pins, steps Muon's matrices by gradients in part
    "openrlhf": Trainer(
        *("openrlhf", openrlhf.RELEASES),
        {SUPERVISED: 40, PREFERENCE: 40, "DeepSpeedConfig": 15, "deepspeed.initialize": 6},
        {"0.10.4": {"muon"}},
    ),
    # only the last command looks for images in the data
    "unsloth": Trainer(
        *("unsloth", ("2026.9.8", "2026.9.14", "2026.10.9"), {COMMAND: 19}),
        dict.fromkeys(("2026.9.8", "2026.9.14"), SEEN),
    ),
    # transformers 4.57.6, which goes with 0.8.0, has no Qwen3.5
    "verl": Trainer("verl", verl.RELEASES, {TRAINER: 38}, {"0.8.0": {"seeing"}}),
    "verl_grpo": Trainer("verl", verl.RELEASES, {REWARDING: 40}),
    "verl_ppo": Trainer("verl", verl.RELEASES, {CRITICISING: 46}),
}
"""By the name of the file with its specs."""
ASKED = [
    (name, program, release)
    for name, trainer in TRAINERS.items()
    for program in trainer.programs
    for release in trainer.releases
]


@cache
def checks(name):
    trainer = TRAINERS[name]
    asked = [(spec, at) for at in trainer.releases for spec in sorted(trainer.specs(name, at))]
    return checked(trainer.target, specs_of(name), asked)


def is_read(program, spec):
    """Whether a program reads a spec's files; each of OpenRLHF's two has those of an objective."""
    return program not in (SUPERVISED, PREFERENCE) or (program == PREFERENCE) == (
        "objective" in spec
    )


@pytest.mark.parametrize(("name", "program", "release"), ASKED)
def test_the_program_resolves_what_was_planned(name, program, release):
    trainer, specs = TRAINERS[name], specs_of(name)
    read = {spec for spec in trainer.specs(name, release) if is_read(program, specs[spec])}
    found = [each for each in checks(name) if each.spec.removesuffix(f"-{release}") in read]
    consumer = f"{trainer.target}@{release}"
    assert_resolved(found, consumer, program, read, trainer.programs[program])


PLANTED = ("nemo-automodel", "openrlhf", "verl")


@cache
def planted(target):
    """What the last release says of each fault of a trainer's files."""
    edited = []
    for name, trainer in TRAINERS.items():
        if trainer.target == target:
            own = {
                key: each
                for key, each in faults(target).items()
                if each.program in trainer.programs
            }
            edited += with_faults(target, specs_of(name), own, trainer.releases[-1])
    return {(each.spec, each.program): each for each in verify(edited)}


@pytest.mark.parametrize(
    ("target", "name"), [(target, name) for target in PLANTED for name in faults(target)]
)
def test_a_planted_fault_is_found(target, name):
    fault = faults(target)[name]
    check = planted(target)[name, fault.program]
    if check.status == "unchecked":
        pytest.skip(f"not checked: {check.reason}")
    assert check.status == fault.status, check
    if fault.key:
        keys = (fault.key, f"flags.{fault.key}")
        found = [each for each in check.differences if each.key in keys]
        assert fault.resolved in [each.resolved for each in found], check
        assert not fault.slot or fault.slot in {each.slot for each in found}
