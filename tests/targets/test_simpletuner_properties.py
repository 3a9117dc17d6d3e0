"""The simpletuner table under random plans and random documents."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version
from tests.random_plans import plans
from tests.slot_coverage import lost_in

from tunec.compiler.emit import emit
from tunec.compiler.ir.ledger import Rank
from tunec.compiler.ir.plan import Plan
from tunec.compiler.read import found_plain, read, recognise
from tunec.compiler.target import Found
from tunec.schemas.frozen import replace
from tunec.targets.simpletuner.families import FAMILIES
from tunec.targets.simpletuner.rows import environment as env
from tunec.targets.simpletuner.rows import forms
from tunec.targets.simpletuner.target import TARGET


@st.composite
def diffusion_plans(draw: st.DrawFn) -> Plan:
    """A plan of any kind, most of it bent to what SimpleTuner trains."""
    plan = draw(plans())
    if draw(st.integers(0, 9)) == 0:
        return plan
    family = draw(st.sampled_from(FAMILIES))
    repository = draw(st.sampled_from([*family.flavours.values()]))
    compute = plan.precision.compute
    states = replace(plan.states, weights=compute, trainable=compute, gradients=compute)
    side = draw(st.integers(1, 2048))
    return replace(
        plan,
        model=replace(
            plan.model,
            kind="diffusion",
            path=repository,
            family=family.denoiser,
            trust_remote_code=False,
        ),
        data=replace(
            plan.data,
            sequence=0,
            packing=False,
            images=1,
            image_width=side,
            image_height=side,
            image_tokens=0,
            vision_tokens=0,
        ),
        states=plan.states if plan.parallel.engine == "deepspeed" else states,
        launch=replace(plan.launch, launcher="accelerate"),
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[Plan, Version]:
    return draw(diffusion_plans()), Version(draw(st.sampled_from(TARGET.releases)))


def found(artifact: Any) -> Any:
    file = next(file for file in TARGET.files if file.name == artifact.name)
    return found_plain(file.parse(artifact.text) if file.parse else artifact.values)


@given(cases())
def test_what_is_not_refused_comes_back(case):
    plan, version = case
    artifacts, diagnostics = emit(TARGET, plan, version)
    assert {each.id for each in diagnostics} <= {
        *("E0901", "E0903", "E0904", "E0905"),
        *("optimizer-left-to-script", "checkpoints-left-out"),
    }
    lost = lost_in(diagnostics)
    dialect, names = TARGET.dialect(version), {each.name for each in artifacts}
    said = {
        slot
        for file in TARGET.files
        if file.name in names
        for entry in file.entries
        if entry.holds_in(dialect) and entry.when(plan)
        for slot in entry.slots
    }
    definitions = read(TARGET, {each.name: found(each) for each in artifacts}, version)
    values = {each.slot: each for each in sorted(definitions, key=lambda each: each.rank)}
    for slot in said - lost:
        assert values[slot].value == plan[slot], (slot, values[slot].reason)
    for definition in definitions:
        if definition.rank is Rank.OBSERVED and definition.slot in said - lost:
            assert definition.value == plan[definition.slot], definition


@given(cases())
def test_bytes_are_the_same_and_files_are_known_again(case):
    plan, version = case
    artifacts, _ = emit(TARGET, plan, version)
    assert emit(TARGET, plan, version)[0] == artifacts
    for artifact in artifacts:
        file = recognise(TARGET, dict(artifact.values))
        assert file is not None
        assert file.name == artifact.name


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("auto"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)


@given(st.data(), st.sampled_from(TARGET.releases))
def test_no_document_makes_reading_fail(data, release):
    file = data.draw(st.sampled_from([each for each in TARGET.files if each.entries]))
    keys = sorted({key for entry in file.entries for key in entry.keys})
    chosen = data.draw(st.sets(st.sampled_from(keys)))
    document = {key: Found(data.draw(values)) for key in chosen}
    for definition in read(TARGET, {file.name: document}, Version(release)):
        assert definition.slot in TARGET.sayable(TARGET.dialect(Version(release)))


@given(st.text(alphabet="ABC=+'\"# \n", max_size=60))
def test_no_text_makes_the_variables_fail(text):
    assert all(isinstance(value, str) for value in env.parse(text).values())
    forms.parse_variables(text)


names = st.from_regex(r"[A-Z][A-Z0-9_]{0,8}", fullmatch=True)
words = st.from_regex(r"[A-Za-z0-9_.,:/-]{1,12}", fullmatch=True)


@given(st.dictionaries(names, words, max_size=6))
def test_variables_that_are_written_are_read_again(variables):
    assert env.parse(env.render(variables, ["made by a test"])) == variables
