"""Rules that are rows: conditions on what is written, and what their rows find."""

import pytest
from tests.tables import rows

from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.lints.conditions import parse
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import FAMILIES
from tunec.compiler.lints.environment import Environment
from tunec.compiler.lints.index import rules, rules_for
from tunec.compiler.lints.kinds import EXPLAINED, kind_of
from tunec.compiler.lints.lint import lint_texts
from tunec.compiler.lints.rows import SLOT, Row, found, reads_of
from tunec.compiler.lints.rule import ALWAYS, Finding
from tunec.targets.registry import TARGETS

READABLE = TARGETS.readable()
OFFLOADED = Row(
    "deepspeed:zero_optimization.offload_optimizer.device=cpu",
    "{0.key} {0.value} at stage {1.value}",
    beside=("deepspeed:zero_optimization.stage=0",),
    by_effective=True,
)


def _run(**texts: str) -> LintContext:
    return lint_texts(texts, READABLE, Environment()).run


def _deepspeed(block: str) -> LintContext:
    text = f'{{"train_batch_size": 8, "zero_optimization": {block}}}'
    return lint_texts({"ds.json": text}, READABLE, Environment(readers=("deepspeed",))).run


def _found(row: Row, run: LintContext) -> list[Finding]:
    return list(found((row,), run))


@pytest.mark.parametrize(*rows(__file__, "test_a_condition_tests_a_value"))
def test_a_condition_tests_a_value(
    condition: str, held: tuple[object, ...], not_held: tuple[object, ...]
) -> None:
    (part,) = parse(condition)
    assert [value for value in held if not part.holds(value)] == []
    assert [value for value in not_held if part.holds(value)] == []


@pytest.mark.parametrize(
    ("written", "is_absent"), [("", True), ("use_cpu: false", True), ("use_cpu: true", False)]
)
def test_a_negated_condition_holds_where_the_key_does_not_say_that(
    written: str, is_absent: bool
) -> None:
    run = _run(accelerate=f"distributed_type: MULTI_GPU\nnum_processes: 2\n{written}\n")
    (part,) = parse("no use_cpu=true")
    assert [part.is_absent(each) for each in run.of("accelerate")] == [is_absent]
    (part,) = parse("no use_cpu")
    assert [part.is_absent(each) for each in run.of("accelerate")] == [written == ""]


@pytest.mark.parametrize(
    ("block", "path"),
    [
        ('{"stage": 0, "offload_optimizer": {"device": "cpu"}}', "offload_optimizer.device"),
        ('{"stage": 0, "cpu_offload": true}', "cpu_offload"),
    ],
)
def test_a_row_can_ask_for_what_a_key_comes_to(block: str, path: str) -> None:
    run = _deepspeed(block)
    (finding,) = _found(OFFLOADED, run)
    assert finding.message == "device cpu at stage 0"
    assert [each.path for each in finding.labels] == [
        f"zero_optimization.{path}",
        "zero_optimization.stage",
    ]
    assert run.keys & {*reads_of((OFFLOADED,))}, "the rule is asked there"


def test_a_condition_in_parentheses_gets_no_label() -> None:
    unshown = ("(deepspeed:zero_optimization.stage=2)",)
    row = Row("deepspeed:train_batch_size>1", "{0.value}", effective=unshown)
    (finding,) = _found(row, _deepspeed('{"stage": 2}'))
    assert [each.path for each in finding.labels] == ["train_batch_size"]
    assert _found(row, _deepspeed('{"stage": 1}')) == []


def test_a_key_of_a_view_is_asked_for_by_the_name_that_its_reader_has() -> None:
    row = Row("deepspeed:zero_optimization{}", "", beside=("no zero_optimization.stage",))
    told = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 3\n"
    view = _run(accelerate=told)
    assert view.said("deepspeed", "zero_optimization.stage") is not None
    assert _found(row, view) == []
    assert len(_found(row, _deepspeed('{"overlap_comm": true}'))) == 1


def test_a_rule_over_a_slot_is_asked_where_a_key_says_it() -> None:
    launched = _run(accelerate="distributed_type: MULTI_GPU\nnum_processes: 2\n")
    assert "slot:parallel.world" in launched.keys
    names = {each.name for each in rules_for(launched.kinds, launched.keys)}
    assert "more-processes-than-devices" in names
    assert "slot:parallel.world" not in _deepspeed('{"stage": 2}').keys


def test_what_a_rule_reads_can_be_written() -> None:
    """A kind or a slot that there is not would be a rule that is never asked."""
    files = {kind_of(target, file) for target in READABLE.values() for file in target.files}
    files |= {"hostfile", "sat", "diffusers", "alpaca-lora", "lycoris"}  # which no table reads
    files |= {"openrlhf-ppo", "openrlhf-rm", EXPLAINED}
    read = {key.partition(":") for rule in rules() for key in rule.reads if key not in ALWAYS}
    assert {name for kind, _, name in read if kind == SLOT} <= SLOTS.keys()
    assert {kind for kind, _, _ in read} - {SLOT, *FAMILIES, *files} == set()
