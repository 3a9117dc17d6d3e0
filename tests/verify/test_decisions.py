"""What no file of a bundle says: told with its reason, or an error."""

import pytest
from tests.verify.edited_runs import SPECS, cases, drop, put

from tunec.compiler.ir.extra import SLOT as EXTRA
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.verify.check import Check, Difference
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


@pytest.mark.parametrize(("steps", "is_lost"), [(6, False), (7, True)])
def test_a_share_that_comes_to_the_planned_warmup_is_no_difference(steps, is_lost):
    trl, launch = bundle()
    planned = {"steps": 300, "epochs": None, "warmup_share": None, "warmup_steps": steps}
    schedule = replace(trl.plan.schedule, **planned)
    trl = replace(trl, plan=replace(trl.plan, schedule=schedule))
    said = edited(trl, "sft.yaml", put("warmup_steps", 0.02))
    lost = {each.slot for each in decisions([said, launch]).lost}
    assert ("schedule.warmup_steps" in lost) == is_lost


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
