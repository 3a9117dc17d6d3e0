"""From every target to every other: what both can say is the same run, and nothing else is said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version
from tests.hypothesis_profiles import share
from tests.random_plans import plans
from tests.slot_coverage import lost_in, said_in

from tunec.compiler.diagnostics.codes import is_code
from tunec.compiler.emit import emit
from tunec.compiler.ir.ledger import Definition, Rank
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.lints.environment import environment_of
from tunec.compiler.read import found_plain, read
from tunec.compiler.translate.translate import translate_texts
from tunec.targets.accelerate.config import by_accelerate
from tunec.targets.registry import TARGETS

PAIRS = (
    *(("deepspeed", "huggingface"), ("huggingface", "deepspeed"), ("huggingface", "huggingface")),
    *(("huggingface", "accelerate"), ("launch", "slurm"), ("slurm", "launch")),
    *(("launch", "huggingface"), ("trl", "huggingface"), ("huggingface", "trl")),
    *(("accelerate", "launch"), ("deepspeed", "deepspeed"), ("huggingface", "launch")),
)
"""Each target as source and as target; `benchmarks` has no place for all 36."""
COUNTED = (
    ("schedule.steps", "schedule.epochs"),
    ("schedule.warmup_steps", "schedule.warmup_share"),
)
READABLE = TARGETS.readable()


@st.composite
def cases(draw, one, other):
    """A plan, and the files of one target that say it without loss."""
    plan = draw(plans("deepspeed" if "deepspeed" in (one, other) else None))
    source = TARGETS[one]
    version = Version(draw(st.sampled_from(source.releases)))
    return source, version, TARGETS[other], plan, *emit(source, plan, version)


def pins(plan, slots):
    """What is given: a count together with what it would take the place of if it came alone."""
    whole = {slot for pair in COUNTED if not slots.isdisjoint(pair) for slot in pair}
    every = sorted(slots | whole)
    return tuple(Definition(slot, plan[slot], Rank.PIN, "test", "given") for slot in every)


def translated(source, version, target, artifacts, given=()):
    texts = {each.name: each.text for each in artifacts}
    around = environment_of(READABLE, readers=(f"{source.name}@{version}",))
    without = missing_references(artifacts)
    asked = ((target, Version(target.latest)),)
    return translate_texts(texts, asked, READABLE, around, given=given, without=without)


def missing_references(artifacts):
    """accelerate.yaml names a file that another target writes."""
    names = {each.name for each in artifacts}
    key = "deepspeed_config.deepspeed_config_file"
    named = any("deepspeed_config_file" in each.text for each in artifacts)
    return (key,) if named and "ds_config.json" not in names else ()


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_what_is_read_and_what_is_given_make_the_files_of_the_plan(one, other):
    """With all that the old files cannot say, the new ones are those that the plan compiles to."""

    @share(len(PAIRS) // 2)
    @given(cases(one, other))
    def holds(case):
        source, version, target, plan, artifacts, faults = case
        if not artifacts or errors(faults):
            return
        said = said_in(source, plan, version, artifacts) - lost_in(faults)
        result = translated(source, version, target, artifacts, pins(plan, SLOTS.keys() - said))
        software = {} if source.package == target.package else {source.package: str(version)}
        expected, refused = emit(target, plan, Version(target.latest), software=software)
        if errors(refused):
            of_starting = any("needs launch.launcher" in each.message for each in refused)
            assert of_starting or not result.ok  # who asks for another launcher is given it
        elif not [each for each in errors(result.diagnostics) if not is_code(each.id)]:
            assert not errors(result.diagnostics)
            values = {each.name: each.values for each in result.artifacts[target.name]}
            assert values == {each.name: each.values for each in expected}

    holds()


@pytest.mark.parametrize(("one", "other"), PAIRS[::2])
def test_without_help_nothing_known_is_lost_and_nothing_is_invented(one, other):
    """Read back, the new files say of each slot that the old ones say what the plan has."""

    @share(len(PAIRS) // 2)
    @given(cases(one, other))
    def holds(case):
        source, version, target, plan, artifacts, faults = case
        if not artifacts or errors(faults):
            return
        said = said_in(source, plan, version, artifacts) - lost_in(faults)
        result = translated(source, version, target, artifacts)
        if not result.ok:
            assert not result.artifacts
            return
        documents = {each.name: found_plain(each.values) for each in result.artifacts[target.name]}
        for each in read(target, documents, Version(target.latest)):
            if each.rank is Rank.OBSERVED and each.slot in said:
                is_kept = unordered(each.slot, each.value) == unordered(each.slot, plan[each.slot])
                assert is_kept or (each.slot in of_launcher(plan) and is_told(each.slot, result))

    holds()


def unordered(slot, value):
    """A value as it counts: variables of the environment have no order."""
    return dict(value) if slot == "launch.environment" else value


def is_told(slot, result):
    """Whether a warning says that the new files leave a slot to another program."""
    told = [each.message for each in result.diagnostics if each.id == "not-carried-over"]
    return any(f"{slot} " in message for message in told)


def of_launcher(plan):
    """What variables of `accelerate launch` say, whatever the Trainer's file means by itself."""
    return {"fsdp.sharding"} if by_accelerate(plan) and plan.fsdp.version == 1 else set()


def errors(diagnostics):
    return [each for each in diagnostics if each.severity == "error"]
