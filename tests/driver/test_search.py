"""The search is complete: what it passes over could not have won.

Brute force judges every shape with every micro batch, by the accounts alone: no bound, no order,
no cache of the search.
"""

from itertools import chain, pairwise, product

import pytest

from tunec.compiler.analyses.memory.account import account, largest_micro_batch
from tunec.compiler.analyses.time.account import step_time
from tunec.compiler.driver import run_passes
from tunec.compiler.frontend.load import load_mapping
from tunec.compiler.passes.fit.fit import problem_of
from tunec.compiler.passes.fit.problem import Problem, Shape, layout_of
from tunec.compiler.passes.fit.search import (
    CONCESSION,
    OFFLOADED,
    TIE,
    Candidate,
    preferred,
    search,
    shortages,
    simplicity,
    verdicts,
    yielding,
)
from tunec.compiler.passes.fit.shapes import global_batch, impossible, ladders, shapes
from tunec.compiler.resolve import resolve
from tunec.schemas.frozen import replace
from tunec.schemas.units import GIB

MODELS = ("smollm2-360m", "llama-3.2-1b", "gemma-2-2b", "glm-4v-9b", "sdxl-base-1.0")
METHODS = ("full", "lora", "qlora")
HARDWARE = ("t4-x1", "rtx-3090-x2", "a100-80g-x4", "v100-32g-x8", "h100-x8-n2", "dgx-spark")
BATCHES = (None, 12, 64)
PINS: tuple[dict[str, object], ...] = (
    {},
    {"zero.stage": 2},
    {"batch.micro": 2},
    {"activation_checkpointing.mode": "layer", "batch.evaluation": 3},
    {"zero.offload_optimizer": "cpu"},
    {"parallel.engine": "fsdp"},
)
BUDGETS = (0.4, 0.7, 1.0)


def problem(model: str, method: str, hardware: str) -> Problem | None:
    data = {"train": "train.jsonl", "samples": 1000}
    data |= {} if model == "sdxl-base-1.0" else {"sequence": 1024}
    spec = {"tunec": 1, "model": model, "method": method, "data": data, "hardware": hardware}
    loaded = load_mapping(spec)
    assert loaded.spec is not None, loaded.diagnostics
    facts = resolve(loaded.spec, loaded.base)
    draft, _, found = run_passes(facts)
    early = [each for each in found if each.severity == "error" and not each.id.startswith("E07")]
    return None if early else problem_of(facts, draft)


def posed(model: str, hardware: str) -> list[Problem]:
    """The problems of all methods that the passes before the search do not refuse."""
    return [each for method in METHODS if (each := problem(model, method, hardware))]


def possible(problem: Problem) -> tuple[Shape, ...]:
    """The shapes that no rule forbids, as the search comes to them."""
    return tuple(chain.from_iterable(ladders(problem)))


def not_forbidden(problem: Problem) -> tuple[Shape, ...]:
    return tuple(shape for shape in shapes(problem) if impossible(problem, shape) is None)


def varied(problem: Problem) -> list[Problem]:
    """Copies of a problem with other batches, pins and budgets; each grid of its own size."""
    return [
        replace(
            problem,
            global_batch=batch,
            pins=tuple(sorted(pins.items())),
            budget=int(share * problem.budget),
            host_budget=None if share == 1 else 64 * GIB,
        )
        for batch, pins, share in product(BATCHES, PINS, BUDGETS)
    ]


def brute_force(problem: Problem) -> Candidate | None:
    """The preferred of all candidates that fit, whatever a bound says of them."""
    found: dict[Shape, Candidate] = {}
    for shape, reserve in product(shapes(problem), (problem.reserve, 0)):
        share, rest = divmod(global_batch(problem, shape.width), shape.width)
        if impossible(problem, shape) or rest:
            continue
        within = replace(problem, budget=problem.budget - reserve)
        wide, narrow = _best(within, shape, share), None
        if (other := narrowed(within, shape, share)) is not None:
            narrow = _best(other, shape, share)
        for best in filter(None, (wide, narrow)):
            is_narrow = best is narrow and best.layout.batch.accumulation > 1
            spends = reserve < problem.reserve
            own = replace(best, spends_reserve=spends, sums_narrow=is_narrow)
            found[shape] = min(found.get(shape, own), own, key=yielding)
    return preferred(found.values())


def _best(problem: Problem, shape, share: int) -> Candidate | None:
    """A shape stands or falls with the best of its candidates, whose evaluation has to fit."""
    fitting = [each for micro in sizes(problem, share) if (each := fit(problem, shape, micro))]
    best = min(fitting, key=yielding, default=None)
    return best if best is not None and evaluates(problem, best) else None


def narrowed(problem: Problem, shape, share: int) -> Problem | None:
    """The problem with gradients that are accumulated in bf16, where they need not be."""
    least = min(sizes(problem, share), default=1)
    states = layout_of(problem, shape, least, share // least).states
    if shape.engine != "deepspeed" or (states.trainable, states.gradients) != ("bf16", "fp32"):
        return None
    pins = {"states.gradients": "bf16", **dict(problem.pins)}
    return replace(problem, pins=tuple(sorted(pins.items())))


def sizes(problem: Problem, share: int) -> list[int]:
    pinned = dict(problem.pins).get("batch.micro")
    return [n for n in range(1, share + 1) if share % n == 0 and pinned in (None, n)]


def fit(problem: Problem, shape, micro: int) -> Candidate | None:
    """A candidate whose training fits the device, and the host with the smallest micro batch."""
    share = global_batch(problem, shape.width) // shape.width
    least = min(sizes(problem, share))
    smallest = layout_of(problem, shape, least, share // least)
    host = account(problem.workload, smallest).host.peak_bytes
    own = layout_of(problem, shape, micro, share // micro)
    judged = own if shape.engine == "fsdp" or own.states != smallest.states else smallest
    if micro > largest_micro_batch(problem.workload, judged, problem.budget):
        return None
    if problem.host_budget is not None and host > problem.host_budget:
        return None
    layout = layout_of(problem, shape, micro, share // micro)
    return Candidate(shape, layout, step_time(problem.workload, layout, problem.machine))


def evaluates(problem: Problem, candidate: Candidate) -> bool:
    """Whether some evaluation batch fits: the micro batch halved, down to one; or the pinned."""
    pinned = "batch.evaluation" in dict(problem.pins)
    size = candidate.layout.batch.evaluation
    while True:
        batch = replace(candidate.layout.batch, evaluation=size)
        layout = replace(candidate.layout, batch=batch)
        if account(problem.workload, layout).required_bytes <= problem.budget:
            return True
        if size == 1 or pinned:
            return False
        size //= 2


def posed_pairs():
    """Each hardware with two of the models, and by night with every one.

    A search may go wrong by what a model keeps or by what a machine has, and each is met with all
    batches, pins, budgets and methods; that it does so for one pair alone is left to the night.
    """
    for (at, model), (then, hardware) in product(enumerate(MODELS), enumerate(HARDWARE)):
        is_now = (at + then) % len(MODELS) < 2
        yield pytest.param(model, hardware, marks=() if is_now else pytest.mark.nightly)


@pytest.mark.parametrize(("model", "hardware"), posed_pairs())
def test_the_search_finds_what_brute_force_finds(model, hardware):
    bases = posed(model, hardware)
    fitting = 0
    for each in (one for base in bases for one in varied(base)):
        answer, wanted = search(each).best, brute_force(each)
        assert (answer is None) == (wanted is None), each
        if answer is not None and wanted is not None:
            assert simplicity(answer) == simplicity(wanted), each
            assert answer.time == wanted.time
            fitting += 1
    assert bases
    assert fitting > 0 or hardware == "t4-x1"


@pytest.mark.parametrize("hardware", HARDWARE)
def test_what_lacks_least_is_the_least_of_all_verdicts(hardware):
    """Nothing that is passed over, for its state alone is more than another needs, lacks less."""
    for base, share in product(posed("llama-3.2-1b", hardware), (0.02, 0.1, 0.3)):
        for each in varied(replace(base, budget=int(share * base.budget)))[::5]:
            device, host = shortages(each)
            found = verdicts(each)
            assert device == min((v for v in found if v.required), key=required, default=None)
            assert host == min((v for v in found if v.host_required), key=required, default=None)


def required(verdict) -> int:
    return verdict.required or verdict.host_required


@pytest.mark.parametrize("hardware", HARDWARE)
def test_possible_is_what_no_rule_forbids(hardware):
    """Some shapes are not even asked about: no pin makes them run."""
    given = problem("llama-3.2-1b", "lora", hardware)
    counted = ({"parallel.data": 1}, {"parallel.world": 2}, {"parallel.tensor": 2})
    other = ({"parallel.engine": "deepspeed"}, {"fsdp.sharding": "hybrid"})
    asked = ({}, *PINS, *counted, *other, {"zero.offload_param": "cpu"})
    for pins in asked:
        each = replace(given, pins=tuple(sorted(pins.items())))
        assert possible(each) == not_forbidden(each)


def test_the_grid_is_large():
    cases = len(BATCHES) * len(PINS) * len(BUDGETS)
    assert cases * sum(len(posed("llama-3.2-1b", hardware)) for hardware in HARDWARE) >= 500


@pytest.mark.parametrize("hardware", HARDWARE)
@pytest.mark.parametrize("model", MODELS)
def test_a_larger_micro_batch_is_never_slower(model, hardware):
    """What the search's bound rests on: `Rung.largest` is the one that is timed."""
    for base in posed(model, hardware):
        given = replace(base, global_batch=96)
        for shape in shapes(given):
            if impossible(given, shape) or 96 % shape.width:
                continue
            share = 96 // shape.width
            layouts = [layout_of(given, shape, n, share // n) for n in sizes(given, share)]
            times = [step_time(given.workload, each, given.machine) for each in layouts]
            seconds = [each.step_seconds for each in times]
            for slow, fast in pairwise(seconds):
                assert fast <= slow * (1 + 1e-12), shape


@pytest.mark.parametrize("hardware", HARDWARE)
@pytest.mark.parametrize("model", MODELS)
def test_recomputing_layers_is_never_faster(model, hardware):
    """What the search's order rests on: such a shape waits for the one that recomputes nothing."""
    for base in posed(model, hardware):
        given = replace(base, global_batch=96)
        assert possible(given) == not_forbidden(given)
        for ladder in ladders(given):
            assert [s.checkpointing for s in ladder] in (["none", "layer"], ["none"], ["layer"])
            for micro in sizes(given, 96 // ladder[0].width if 96 % ladder[0].width == 0 else 0):
                share = 96 // ladder[0].width
                layouts = [layout_of(given, shape, micro, share // micro) for shape in ladder]
                times = [step_time(given.workload, each, given.machine) for each in layouts]
                seconds = [each.step_seconds for each in times]
                assert seconds == sorted(seconds)


@pytest.mark.parametrize("hardware", HARDWARE)
@pytest.mark.parametrize("model", MODELS)
def test_the_largest_micro_batch_is_what_the_whole_account_says(model, hardware):
    """Its short cuts, the state that is always there and one sample alone, leave nothing out."""
    for base in posed(model, hardware):
        for shape in possible(base):
            share = global_batch(base, shape.width) // shape.width
            smallest = layout_of(base, shape, 1, share)
            for part in (0.1, 0.4, 1.0):
                budget = int(part * base.budget)
                found = largest_micro_batch(base.workload, smallest, budget)
                assert trains(base, smallest, max(found, 1), budget) in (found > 0, None)
                assert not trains(base, smallest, found + 1, budget)


def trains(problem: Problem, smallest, micro: int, budget: int) -> bool | None:
    """Whether every phase of training fits with a micro batch; evaluation is not looked at.

    Images of all micro batches wait on the device, so the device's share of the batch must stay:
    None if the micro batch does not divide it.
    """
    batch = replace(smallest.batch, micro=micro, evaluation=0)
    if problem.workload.data.images:
        times, rest = divmod(smallest.batch.accumulation, micro)
        if rest:
            return None
        batch = replace(batch, accumulation=times)
    return account(problem.workload, replace(smallest, batch=batch)).required_bytes <= budget


@pytest.mark.parametrize("model", MODELS)
def test_more_memory_is_never_slower(model):
    for base in (one for hardware in HARDWARE for one in posed(model, hardware)):
        shares = (0.3, 0.5, 0.7, 0.85, 1.0)
        found = [search(replace(base, budget=int(s * base.budget))).best for s in shares]
        assert [each is None for each in found] == sorted((e is None for e in found), reverse=True)
        for less, more in pairwise(each for each in found if each):
            is_back = less.shape.offloads and not more.shape.offloads
            kept = less.spends_reserve + less.sums_narrow
            conceded = (1 + CONCESSION * kept) * (1 + OFFLOADED * is_back)
            assert more.cost <= less.cost * (1 + TIE) * conceded


@pytest.mark.parametrize("model", ["gpt2", "flan-t5-base", "modernbert-base"])
@pytest.mark.parametrize("hardware", ["a100-80g-x1", "gh200-96g-x1", "rtx-4090-x1"])
def test_a_small_model_with_room_moves_nothing_to_the_host(model, hardware):
    base = problem(model, "full", hardware)
    assert base is not None
    for batch in (32, 1024):
        best = search(replace(base, global_batch=batch)).best
        assert best is not None
        assert best.shape.engine == "none"


@pytest.mark.parametrize("name", ["adamw_8bit", "paged_adamw_8bit", "lion_8bit"])
def test_states_in_8_bits_are_sharded_at_every_stage(name):
    """A whole 14B is on no device of 40 GB; its 8-bit states halve what AdamW's take of a shard."""
    base = problem("qwen3-14b", "full", "a100-40g-x8")
    assert base is not None
    optimizer = replace(base.workload.optimizer, name=name, kernel="bitsandbytes")
    best = search(replace(base, workload=replace(base.workload, optimizer=optimizer))).best
    assert best is not None
    assert (best.shape.stage, best.shape.offloads) == (3, False)


def test_a_large_model_moves_to_the_host_what_its_devices_cannot_hold():
    """Beside the layers of 13B two devices have room for one sample; the host's make it four."""
    base = problem("olmo-2-13b", "lora", "rtx-4090-x2")
    assert base is not None
    best = search(base).best
    assert best is not None
    assert best.shape.offload_param == "cpu"


@pytest.mark.parametrize("micro", [1, 2, 8])
@pytest.mark.parametrize("engine", ["deepspeed", "fsdp"])
def test_the_smallest_layout_is_one_that_the_pins_allow(micro, engine):
    """No layout with the pinned micro batch needs less than what is said to lack least."""
    base = problem("llama-3.2-1b", "full", "a100-80g-x4")
    assert base is not None
    pins = (("batch.micro", micro), ("parallel.engine", engine))
    device, _ = shortages(replace(base, pins=pins, budget=2 * GIB, host_budget=None))
    assert device is not None
    assert device.smallest is not None
    assert device.smallest.batch.micro == micro
    given = replace(base, pins=pins)
    layouts = [
        layout_of(given, shape, micro, global_batch(given, shape.width) // shape.width // micro)
        for shape in possible(given)
    ]
    batches = [replace(each.batch, evaluation=1) for each in layouts]
    least = [replace(each, batch=batch) for each, batch in zip(layouts, batches, strict=True)]
    assert device.required == min(account(base.workload, e).required_bytes for e in least)


def test_verdicts_and_answer_agree():
    base = problem("llama-3.2-1b", "full", "a100-80g-x4")
    assert base is not None
    for each in varied(base):
        answer = search(each)
        fitting = [verdict.best for verdict in answer.verdicts if verdict.best]
        assert answer.best == preferred(fitting)
