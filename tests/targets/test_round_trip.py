"""What is emitted is read back: `read(emit(plan))` gives every slot that the files say."""

from collections.abc import Mapping

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version
from tests.plans import plan_of
from tests.random_plans import plans
from tests.slot_coverage import lost_in, said_in

from tunec.compiler.emit import emit
from tunec.compiler.frontend.parse import parse
from tunec.compiler.ir.ledger import Rank
from tunec.compiler.ir.plan import Plan
from tunec.compiler.lints.formats import parse_text
from tunec.compiler.read import found_in, read, recognise
from tunec.compiler.target import Artifact, Found, Target
from tunec.targets.launch.script import found_in as found_in_script
from tunec.targets.registry import TARGETS

NAMES = ("deepspeed", "huggingface", "launch", "trl")


def found(artifact: Artifact) -> Mapping[str, Found]:
    """The keys of an emitted text, through the same parsers that read anybody's files."""
    if not artifact.values:
        return {}  # a chat template has no keys
    if artifact.format == "shell":
        return found_in_script(artifact.text, artifact.name)
    if artifact.format == "text":
        (parsed,), faults = parse_text(artifact.name, artifact.text)
        assert not faults
        return found_in(parsed.root)
    node, faults = parse(artifact.text, artifact.name, artifact.format)
    assert not faults
    return found_in(node)


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, str, Plan]:
    name = draw(st.sampled_from(NAMES))
    release = draw(st.sampled_from(TARGETS[name].releases))
    objectives = ("sft", "dpo", "grpo", "reward") if name == "trl" else ("sft",)
    engine = "deepspeed" if name == "deepspeed" else None
    predictions = ("loss", "logits", "answers") if name == "huggingface" else ("loss",)
    return name, release, draw(plans(engine, objectives, predictions))


def opened(case: tuple[str, str, Plan]) -> tuple[Target, Plan, Version]:
    name, release, plan = case
    return TARGETS[name], plan, Version(release)


@given(cases())
def test_every_said_slot_comes_back(case):
    target, plan, version = opened(case)
    artifacts, diagnostics = emit(target, plan, version)
    definitions = read(target, {each.name: found(each) for each in artifacts}, version)
    lost = lost_in(diagnostics)
    observed = {d.slot: d for d in definitions if d.rank is Rank.OBSERVED}
    assumed = {d.slot: d for d in reversed(definitions) if d.rank is Rank.CONSUMER}
    for slot in said_in(target, plan, version, artifacts) - lost:
        definition = observed.get(slot) or assumed[slot]
        assert definition.value == plan[slot], (slot, definition.reason)
        assert type(definition.value) is type(plan[slot]), slot


@given(cases())
def test_files_agree_with_each_other(case):
    """Two files of one run give no slot two values."""
    target, plan, version = opened(case)
    artifacts, diagnostics = emit(target, plan, version)
    said = said_in(target, plan, version, artifacts) - lost_in(diagnostics)
    seen: dict[str, object] = {}
    for definition in read(target, {each.name: found(each) for each in artifacts}, version):
        if definition.rank is Rank.OBSERVED and definition.slot in said:
            assert seen.setdefault(definition.slot, definition.value) == definition.value


@given(cases())
def test_emission_faults_are_losses_and_refusals_only(case):
    """Nothing that is written breaks the reader's own schema, and nothing raises."""
    _, diagnostics = emit(*opened(case))
    found = {each.id for each in diagnostics}
    if case[0] == "trl" and lost_in(diagnostics):
        found -= {"E0904"}  # the key of what is lost is required
    assert found <= {
        "E0901",
        "E0905",
        "file-left-out",
        "optimizer-left-to-script",
        "schedule-left-to-script",
    }


@given(
    plans(None, ("sft", "dpo", "grpo"), ("loss", "logits", "answers")),
    st.sampled_from([(name, each) for name in TARGETS.names() for each in TARGETS[name].releases]),
)
def test_no_reader_refuses_by_its_schema_what_a_plan_decides(plan, written_for):
    """A value that a target has no word for is told as such, not as a fault of the file."""
    name, release = written_for
    _, diagnostics = emit(TARGETS[name], plan, Version(release))
    if name == "trl" and lost_in(diagnostics):
        return  # the key of what is lost is required
    assert "E0904" not in {each.id for each in diagnostics}


@given(cases())
def test_emission_is_deterministic_and_files_are_recognised(case):
    target, plan, version = opened(case)
    artifacts, _ = emit(target, plan, version)
    assert emit(target, plan, version)[0] == artifacts
    for artifact in filter(lambda each: each.values, artifacts):
        file = recognise(target, dict(artifact.values))
        assert file is not None
        assert file.name == artifact.name


@given(cases())
def test_yaml_says_to_yaml_1_1_what_was_meant(case):
    """PyYAML, which the consumers use, types every value as the rows gave it."""
    artifacts, _ = emit(*opened(case))
    for artifact in artifacts:
        if artifact.format == "yaml":
            assert yaml.safe_load(artifact.text) == artifact.values


@given(cases())
def test_ds_config_has_none_of_the_known_misconfigurations(case):
    artifacts, _ = emit(*opened(case))
    for artifact in artifacts:
        if artifact.name == "ds_config.json":
            check_ds_config(artifact)


def check_ds_config(artifact: Artifact) -> None:
    values, zero = artifact.values, artifact.values["zero_optimization"]
    assert '"auto"' not in artifact.text  # MC004, MC039
    assert {"enabled"} == set(values["bf16"]) or values["bf16"]["enabled"]
    assert not {"loss_scale", "hysteresis"} & set(values["bf16"])  # MC034
    assert not (values["bf16"]["enabled"] and values["fp16"]["enabled"])
    assert "offload_param" not in zero or zero["stage"] == 3  # MC041
    assert "aio" not in zero  # MC032
    assert all(type(zero[key]) is int for key in zero if key.endswith("size"))  # MC037
    assert {"gradient_clipping", "steps_per_print"} <= set(values)  # MC036
    for block in ("offload_optimizer", "offload_param"):
        assert block not in zero or "pin_memory" in zero[block]  # MC036
    warmup = values.get("scheduler", {}).get("params", {}).get("warmup_num_steps", 1)
    assert warmup >= 1  # MC021


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("auto"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)


@given(st.data(), st.sampled_from(NAMES))
def test_reading_raises_for_no_document(data, name):
    target = TARGETS[name]
    version = Version(target.latest)
    file = data.draw(st.sampled_from([each for each in target.files if each.entries]))
    keys = sorted({key for entry in file.entries for key in entry.keys})
    document = {
        key: Found(data.draw(json_values)) for key in data.draw(st.sets(st.sampled_from(keys)))
    }
    for definition in read(target, {file.name: document}, version):
        assert definition.slot in definition.slot


@pytest.mark.parametrize("name", NAMES)
def test_an_unsupported_version_is_refused_with_the_range(name):
    target = TARGETS[name]
    artifacts, (fault,) = emit(target, plan_of(), Version("0.1"))
    assert artifacts == ()
    assert fault.id == "E0902"
    assert str(target.supported) in fault.notes[0]
