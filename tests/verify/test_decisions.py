"""What no file of a bundle says: told with its reason, or an error."""

from functools import cache

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.hypothesis_profiles import share
from tests.random_plans import plans
from tests.verify.edited_runs import SPECS, cases, drop, put
from tests.verify.trainer_specs import specs_of

from tunec.compiler.driver import compile_spec
from tunec.compiler.emit import emit
from tunec.compiler.frontend.load import load_text
from tunec.compiler.ir.extra import SLOT as EXTRA
from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.verify.cases import cases_of
from tunec.compiler.verify.check import Check, Difference
from tunec.compiler.verify.contract import Delivered
from tunec.compiler.verify.decisions import decisions, diagnostics, lines
from tunec.schemas.frozen import replace
from tunec.targets.delegation import by_trainer
from tunec.targets.registry import TARGETS

WHOLE = ("trl", "launch")


def bundle(run="deepspeed", targets=WHOLE):
    return [cases(run)[each] for each in targets]


def edited(case, name, edit):
    old = case.delivered[name]
    text = edit(old.text)
    assert text != old.text
    return replace(case, delivered={**case.delivered, name: replace(old, text=text)})


def without_row(case, slot):
    """The case of a target whose table has no row for a slot."""
    files = tuple(
        replace(file, entries=tuple(each for each in file.entries if slot not in each.slots))
        for file in case.target.files
    )
    return replace(case, target=replace(case.target, files=files))


@pytest.mark.parametrize("run", SPECS)
def test_every_slot_is_said_or_has_a_reason(run):
    found = decisions(list(cases(run).values()))
    told = [slot for slots in found.told.values() for slot in slots]
    assert found.lost == ()
    assert sorted((*found.said, *told)) == sorted(SLOTS.keys() - {EXTRA})
    assert all(reason.strip() for reason in found.told)


def test_a_key_that_is_dropped_is_told():
    trl, launch = bundle()
    found = decisions([edited(trl, "sft.yaml", drop("seed")), launch])
    assert found.lost == ()  # the trainer's own default is the planned seed
    found = decisions([edited(trl, "sft.yaml", drop("learning_rate")), launch])
    (lost,) = found.lost
    assert (lost.slot, lost.file) == ("optimizer.learning_rate", "trl/sft.yaml")


def test_a_changed_value_is_told_once():
    trl, launch = bundle()
    every = [decisions([edited(trl, "sft.yaml", put("lora_r", 4)), launch])]
    (told,) = diagnostics(every, (), {})
    assert told.id == "E1003"
    assert "adapter.rank, which the plan decided as 16" in told.message
    differs = Difference("adapter.rank", "lora_r", "trl/sft.yaml", 16, 4)
    heard = Check("run", "trl/sft.yaml", "trl sft", "trl", "differs", differences=(differs,))
    assert list(diagnostics(every, (heard,), {})) == []


@pytest.mark.parametrize(
    ("share", "steps", "written", "is_lost"),
    [
        (None, 6, 0.02, False),
        (None, 7, 0.02, True),
        (0.02, 6, 6, False),
        (0.02, 6, 7, True),
        (0.02, 6, 0.0199, False),
        (0.02, 6, 0.03, True),
    ],
)
def test_as_many_steps_of_warmup_in_other_words_are_no_difference(share, steps, written, is_lost):
    trl, launch = bundle()
    planned = {"steps": 300, "epochs": None, "warmup_share": share, "warmup_steps": steps}
    schedule = replace(trl.plan.schedule, **planned)
    trl = replace(trl, plan=replace(trl.plan, schedule=schedule))
    said = edited(trl, "sft.yaml", put("warmup_steps", written))
    lost = {each.slot for each in decisions([said, launch]).lost}
    assert any(slot.startswith("schedule.warmup") for slot in lost) == is_lost


def test_a_row_that_a_table_lacks_is_told():
    trl, launch = bundle()
    (lost,) = decisions([without_row(trl, "runtime.seed"), launch]).lost
    assert lost.slot == "runtime.seed"
    assert lost.reasons == ("trl has neither a key nor a reason",)


def test_two_targets_that_leave_a_slot_to_each_other_are_told():
    trl, launch = bundle()
    leaving = {**launch.target.cannot, "launch.script": by_trainer()}
    target = replace(without_row(launch, "launch.script").target, cannot=leaving)
    (lost,) = decisions([trl, replace(launch, target=target)]).lost
    assert lost.slot == "launch.script"
    assert lost.reasons == (
        "trl: the launch command says it",
        "launch: the trainer's own files say it",
    )


def test_what_another_target_would_say_is_told_where_it_is_not_asked_for():
    found = decisions(bundle(targets=("trl",)))
    assert "launch.script" in found.told["the launch command says it"]
    assert found.lost == ()


def test_a_whole_bundle_leaves_nothing_to_others():
    found = decisions(bundle())
    assert "the launch command says it" not in found.told
    assert "the trainer's own files say it" not in found.told


def test_lines_are_short_and_name_whole_groups():
    told = list(lines([decisions(bundle("ddp", ("huggingface", "launch")))]))
    assert len(told) < 30
    assert any(line.startswith("in no file: job.*: ") for line in told)


@pytest.mark.parametrize("name", TARGETS)
def test_a_loss_is_no_promise_of_another_file(name):
    for slot, cannot in TARGETS[name].cannot.items():
        plan = cases("deepspeed")["trl"].plan
        assert not (cannot.loses and cannot.elsewhere(plan)), slot


# ── every target, and random plans ───────────────────────────────────────────────────────────────

WRITTEN = [name for name in TARGETS if not TARGETS[name].is_read_only]
OWN = ("axolotl", "llamafactory", "ms-swift", "nemo-automodel", "openrlhf", "unsloth", "verl")
JOINED = (("data", "schedule"), ("optimizer",), ("runtime", "job"), ("adapter", "quantization"))
"""Groups of slots that hold together when they are taken from another plan."""
BASES = 3


def texts(name):
    """Specs for a target, of which a few are compiled."""
    if name in OWN:
        specs = specs_of(name.replace("-", "_"))
        every = [yaml.safe_dump({"tunec": 1, "name": key, **specs[key]}) for key in specs]
        return [*every[:: len(every) // BASES]]
    volume = "job: {volume: mine}\n" if name == "kubeflow" else ""
    return [f"{text}{volume}" for text, _ in SPECS.values()]


@cache
def bases(name):
    """Sound cases of a target, beside a launcher's or a trainer's of the same plan."""
    if name == "simpletuner":
        return [cases("flux")[name]]
    found = []
    for text in texts(name):
        loaded = load_text(text, targets=TARGETS.names())
        asked = [TARGETS.resolve(name, loaded.software)]
        compiled = compile_spec(loaded, asked)
        found += cases_of(compiled, asked) if compiled.ok else []
        if len(found) == BASES:
            break
    return found


def of_plan(base, name, plan):
    """A case of a plan for a target; None where it is refused."""
    target, version = TARGETS.resolve(name, base.software)
    written, faults = emit(target, plan, version, software=base.software)
    if any(each.severity == "error" for each in faults):
        return None
    delivered = {each.name: Delivered(each.name, each.name, each.text) for each in written}
    expected = {each.name: each for each in written}
    held = {"plan": plan, "delivered": delivered, "expected": expected}
    return replace(base, target=target, version=version, **held)


@pytest.mark.parametrize("name", WRITTEN)
def test_every_slot_of_a_random_plan_is_said_or_has_a_reason(name):
    sound = []

    @share(4)
    @given(st.sampled_from(bases(name)), st.none() | st.sampled_from(JOINED), plans())
    def holds(base, groups, other):
        drawn = {slot: other[slot] for slot in SLOTS if slot.partition(".")[0] in (groups or ())}
        plan = Plan.of({**base.plan.values(), **drawn})
        partner = "launch" if base.target.counting else "trl"
        found = [of_plan(base, each, plan) for each in (name, partner)]
        if found[0] is None:
            return
        sound.append(plan)
        for bundle in ([found[0]], [each for each in found if each is not None]):
            every = decisions(bundle)
            told = [slot for slots in every.told.values() for slot in slots]
            assert every.lost == ()
            assert sorted((*every.said, *told)) == sorted(SLOTS.keys() - {EXTRA})
            assert all(reason.strip() for reason in every.told)

    holds()
    assert sound
