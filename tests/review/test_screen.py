"""A plan on one screen: whatever the plan, it keeps to 40 lines of 100 columns, and says enough."""

import html
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.random_plans import plans

from tunec.compiler.cli.session import can_draw
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.driver import Planned, plan
from tunec.compiler.frontend.load import load_mapping, load_spec
from tunec.compiler.ir.ledger import Definition, Ledger, Origin, Rank
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.requirements import together
from tunec.compiler.review.outcome import doubt_of
from tunec.compiler.review.plan_view import plan_json, plan_text
from tunec.compiler.review.report.pages import plan_page
from tunec.compiler.review.screen.decisions import TOPICS
from tunec.compiler.review.screen.pen import HEIGHT, WIDTH, Pen
from tunec.compiler.review.screen.screen import Command, duration, plan_screen
from tunec.schemas.frozen import replace
from tunec.schemas.hardware.catalogue import cluster_names, device_names
from tunec.targets.registry import TARGETS

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(
    path
    for path in (ROOT / "examples").rglob("*.yaml")
    if re.search(r"^(tunec|extends):", path.read_text("utf-8"), re.MULTILINE)
)
FIVE = {
    "tunec": 1,
    "model": "llama-3.1-8b",
    "method": "qlora",
    "data": {"train": "train.jsonl", "samples": "10k", "sequence": 2048},
    "hardware": "a100-80g-x8",
}
PEN = Pen()
COMMAND = Command(("tunec", "compile", "spec.yaml"), (), ("-o", "out"))
ESCAPES = re.compile(r"\x1b\[[\d;]*m")


def planned_of(data, *overrides: str) -> Planned:
    return plan(load_mapping(data, overrides))


def screen_of(planned: Planned, pen: Pen = PEN, commands=(COMMAND,)) -> str:
    """The screen, held to its size."""
    text = plan_screen(planned, pen, commands)
    lines = ESCAPES.sub("", text).split("\n")
    assert len(lines) <= HEIGHT, text
    assert max(map(len, lines)) <= WIDTH, text
    return text


def test_a_forecast_in_doubt_is_shown_as_such():
    """Whatever shows a plan names the doubt that `choose` has of it."""
    doubted = planned_of({**FIVE, "hardware": "mi300x-x1"})
    why = doubt_of(doubted)
    assert why is not None
    assert why in screen_of(doubted).replace("\n        ", " ")
    assert f"in doubt: {why}" in plan_text(doubted)
    assert plan_json(doubted)["time"]["doubt"] == why
    assert why in html.unescape(plan_page(doubted, (), {}))
    plain = planned_of(FIVE)
    assert "\ndoubt" not in screen_of(plain)
    assert "doubt" not in plan_json(plain)["time"]


def rows_of(text: str, heading: str) -> dict[str, str]:
    """What stands below a heading, by slot."""
    block = re.search(rf"^{heading}$\n((?:  .*\n)*)", text, re.MULTILINE)
    return dict(re.findall(r"^  (\S+) +(.*)$", block[1], re.MULTILINE)) if block else {}


@pytest.mark.parametrize("path", EXAMPLES, ids=[f"{p.parent.name}/{p.stem}" for p in EXAMPLES])
def test_every_example_has_a_screen(path):
    loaded = load_spec(path)
    names = loaded.spec.targets if loaded.spec else ()
    planned = plan(loaded, together(TARGETS.resolve, names, loaded.software))
    if planned.plan is None:
        assert plan_screen(planned, Pen()) == ""
        return
    text = screen_of(planned)
    assert re.search(r"^fits(, barely)?: \S+ \S+ of \S+ \S+ on ", text, re.MULTILINE)
    own, others = rows_of(text, "you set"), rows_of(text, "decided for you")
    assert "batch.micro" in own | others
    assert 6 <= len(own | others) <= 13
    assert "next    tunec compile" in text


HARDWARE = [*cluster_names(), *(f"{name}-x{n}" for name in device_names() for n in (1, 8))]


@pytest.mark.parametrize("part", range(8))
def test_every_hardware_of_the_catalogue_has_a_screen(part):
    shown = 0
    for name in HARDWARE[part::8]:
        planned = planned_of({**FIVE, "hardware": name})
        if planned.plan is None:
            continue
        shown += 1
        vendors = {each.vendor for each in planned.facts.devices.values()}
        text = screen_of(planned)
        if "nvidia" not in vendors:
            assert not re.search("CUDA|NCCL|nvidia", text), name
        assert ("price " in text) == (planned.facts.cluster.price_per_hour is not None)
    assert shown > len(HARDWARE) / 16


WORDS = st.text("ab ;:,.'\n\t\x1b█", max_size=200)


@given(random=plans(objectives=("sft", "dpo", "grpo")), data=st.data())
def test_any_plan_keeps_to_the_screen(random, data):
    """Values, reasons, diagnostics and arguments of any length."""
    planned = planned_of(FIVE)
    reasons = data.draw(st.lists(WORDS.filter(str.strip), min_size=1, max_size=5))
    ranks = data.draw(st.lists(st.sampled_from((Rank.PIN, Rank.DERIVED)), min_size=1, max_size=7))
    origins = (Origin("spec", "hardware"), Origin("slot", "batch.micro"))
    definitions = (
        Definition(
            slot,
            random[slot],
            ranks[at % len(ranks)],
            "x",
            reasons[at % len(reasons)],
            (origins[at % 2],),
        )
        for at, slot in enumerate(SLOTS)
    )
    warnings = st.builds(Diagnostic, st.just("x-y"), st.just("warning"), WORDS)
    found = data.draw(st.lists(warnings, max_size=6))
    arguments = tuple(data.draw(st.lists(WORDS.map(repr), max_size=4)))
    other = replace(
        planned,
        plan=replace(random, devices=replace(random.devices, budget=2**37, memory=2**37)),
        ledger=Ledger().add(tuple(definitions)),
        diagnostics=tuple(found),
    )
    pen = Pen(data.draw(st.booleans()), data.draw(st.booleans()))
    command = Command(("tunec", "compile", "spec.yaml"), arguments, ("-o", "out"))
    screen_of(other, pen, (command, command, command))


def test_what_the_user_set_is_told_apart():
    data = {
        **FIVE,
        "method": {"lora": {"rank": 64}},
        "pin": {"zero.stage": 2, "attention.implementation": {"value": "eager", "reason": "ours"}},
        "train": {"learning_rate": 1e-4},
    }
    text = screen_of(planned_of(data))
    own, others = rows_of(text, "you set"), rows_of(text, "decided for you")
    assert set(own) == {
        *("adapter.rank", "optimizer.learning_rate", "attention.implementation", "and")
    }
    assert "ours (" in own["attention.implementation"]
    assert "instead of sdpa)" in " ".join(text.split())
    assert "and pins of 1 more slot\n" in text
    assert others["batch.global"].startswith("32 samples a step")
    assert not own.keys() & others.keys()


def test_defaults_are_not_what_the_user_set():
    own = rows_of(screen_of(planned_of(FIVE)), "you set")
    assert own == {"quantization.format": own["quantization.format"]}


def test_slots_of_no_concern_are_left_out():
    full = screen_of(planned_of({**FIVE, "method": "full"}))
    assert not re.search(r"^  (adapter|quantization|generation|objective)\.", full, re.MULTILINE)
    assert "ZeRO" in full
    image = {
        "tunec": 1,
        "model": "flux.1-dev",
        "method": "lora",
        "data": {"train": "images", "samples": 100, "resolution": 1024},
        "hardware": "a100-80g-x1",
        "batch": {"global": 1},
        "train": {"steps": 100},
    }
    text = screen_of(planned_of(image))
    assert "tokens" not in text
    assert "samples a second" in text


def test_the_run_is_told_as_far_as_it_is_known():
    text = screen_of(planned_of(FIVE))
    planned = planned_of(FIVE)
    steps = planned.plan.schedule.steps
    total = duration(steps * planned.time.step_seconds)
    assert f"run     {steps} steps in 1 epoch, at most about {total}" in text
    unknown = planned_of({**FIVE, "data": {"train": "x", "sequence": 2048}})
    assert unknown.plan.schedule.steps is None
    text = screen_of(unknown)
    assert re.search(
        r"^run     1 epoch; a step takes at most about .+; number of steps unknown",
        text,
        re.MULTILINE,
    )


@pytest.mark.parametrize("said", [{"lengths": "mean 400"}, {"packing": True}])
def test_a_run_is_at_most_so_long_only_where_samples_may_be_shorter(said):
    text = screen_of(planned_of({**FIVE, "data": {**FIVE["data"], **said}}))
    assert re.search(r"^run     .+; a step takes about ", text, re.MULTILINE)


def test_a_price_is_told_where_the_hardware_has_one():
    assert "price" not in screen_of(planned_of(FIVE))
    priced = {**FIVE, "hardware": "lambda-a6000-x4"}
    text = screen_of(planned_of(priced))
    found = re.search(r"^price   at most about \$([\d.]+), at \$4\.36 an hour$", text, re.MULTILINE)
    planned = planned_of(priced)
    hours = planned.plan.schedule.steps * planned.time.step_seconds / 3600
    assert float(found[1]) == pytest.approx(4.36 * hours, abs=0.01)
    unknown = {**priced, "data": {"train": "x", "sequence": 2048}}
    assert "price   $4.36 an hour\n" in screen_of(planned_of(unknown))


def test_bars_follow_each_other_and_fill_the_device():
    text = screen_of(planned_of(FIVE))
    block = text.partition("memory of a device")[2].partition("memory of its host")[0]
    bars = re.findall(r"^  .{39}( *)([█▏░]+)$", block, re.MULTILINE)
    assert len(bars) >= 5
    for (lead, bar), (after, _) in pairwise(bars):
        assert abs(len(after) - len(lead) - len(bar)) <= 1
    amounts = re.findall(r"^  .{28} *([\d.]+) (GiB|MiB) ", block, re.MULTILINE)
    total = sum(float(amount) / (1024 if unit == "MiB" else 1) for amount, unit in amounts)
    assert total == pytest.approx(planned_of(FIVE).plan.devices.memory / 2**30, abs=0.5)


def test_a_host_that_holds_much_has_bars_too():
    offloaded = {
        **FIVE,
        "method": "full",
        "hardware": "frontier",
        "pin": {"zero.offload_optimizer": "cpu", "zero.stage": 2},
    }
    text = screen_of(planned_of(offloaded))
    assert re.search(r"^  offloaded optimizer states +\S+ GiB +█+$", text, re.MULTILINE)


def test_colour_and_drawing_are_for_those_who_can_see_them():
    planned = planned_of(FIVE)
    colored, plain = screen_of(planned, Pen(color=True)), screen_of(planned)
    assert "\x1b[" in colored
    assert ESCAPES.sub("", colored) == plain
    assert screen_of(planned, Pen(drawing=False)).isascii()
    assert (can_draw("utf-8"), can_draw("latin-1"), can_draw(None)) == (True, False, False)


def test_a_command_can_be_pasted():
    planned = planned_of(FIVE)
    given = ("--set=pin.zero.stage=2", "--set=name=it is 'ours'", *["--set=train.seed=1"] * 5)
    command = Command(("tunec", "compile", "spec.yaml"), given, ("-o", "out"))
    text = screen_of(planned, commands=(command,))
    pasted = text.partition("next    ")[2].replace("\\\n", " ")
    assert shlex.split(pasted) == [*command.begins, *given, *command.ends]
    endless = Command(command.begins, ("--set=name=" + "x" * 500,), command.ends)
    assert "tunec compile spec.yaml ... -o out" in screen_of(planned, commands=(endless,))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.25, "250 ms"),
        (1.69, "1.69 s"),
        (600, "10 min"),
        (9000, "2.5 h"),
        (360000, "100.0 h (4.2 days)"),
    ],
)
def test_durations(seconds, words):
    assert duration(seconds) == words


def test_topics_are_slots_and_each_once():
    slots = [topic.slot for topic in TOPICS]
    assert len(set(slots)) == len(slots)
    assert set(slots) <= set(SLOTS)
