"""Passes that keep nothing, in which answers are generated, scored and rewarded before a step."""

from collections.abc import Callable, Iterable, Iterator
from math import prod
from typing import Final, NamedTuple

from tunec.compiler.analyses.memory.activations import Pass
from tunec.compiler.analyses.memory.arithmetic import arithmetic
from tunec.compiler.analyses.memory.counts import count
from tunec.compiler.analyses.memory.lora import merged, packed_before
from tunec.compiler.analyses.memory.modules import BYTES
from tunec.compiler.analyses.memory.sharding import PARAMETERS, Sharding
from tunec.compiler.analyses.memory.terms.casts import evaluation_casts, head_cast
from tunec.compiler.analyses.memory.terms.fsdp import whole_in_passing
from tunec.compiler.analyses.memory.terms.fsdp_units import Whole, units_of
from tunec.compiler.analyses.memory.terms.gathering import fetched, gathered
from tunec.compiler.analyses.memory.terms.generation import (
    answered,
    gathered_for_generation,
    generating,
    generating_states,
    prompting,
    reading,
    writing,
)
from tunec.compiler.analyses.memory.terms.passes import (
    EXPANDED,
    activations,
    adapting,
    embedded,
    evaluated,
    losing,
    main_part,
    sequences_of,
)
from tunec.compiler.analyses.memory.text import text_tokens
from tunec.compiler.analyses.memory.timeline import (
    At,
    Moment,
    Sizes,
    Term,
    lasting,
    of_samples,
    total,
)
from tunec.compiler.analyses.memory.workload import Generation, Preference, Workload
from tunec.schemas.frozen import replace

_STAYS: Final = frozenset({"key-value cache", "gathered parameters"})
_Put = Callable[[Sizes, Moment], Iterable[Term]]
"""A function that makes terms of the sizes that answers have at a moment."""


class _Moments(NamedTuple):
    """The moments of generation: prompts are read, then the last token is generated."""

    prompt: Moment
    prompt_head: Moment
    prompt_gathering: Moment
    answers: Moment
    head: Moment
    gathering: Moment


_IN_TRAINING: Final = _Moments(
    At.PROMPT,
    At.PROMPT_HEAD,
    At.PROMPT_GATHERING,
    At.GENERATION,
    At.GENERATION_HEAD,
    At.GENERATION_GATHERING,
)
_IN_EVALUATION: Final = _Moments(
    At.ANSWERS_PROMPT,
    At.ANSWERS_PROMPT_HEAD,
    At.ANSWERS_PROMPT_GATHERING,
    At.ANSWERS,
    At.ANSWERS_HEAD,
    At.ANSWERS_GATHERING,
)


def answer_terms(workload: Workload, plan: Sharding, run: Pass, share: int) -> Iterator[Term]:
    """Answers that are generated before a step or in evaluation, and GRPO's use of them.

    `run`: the pass of training; `share`: samples of the rank in one optimizer step.
    """
    asked, written = workload.preference, workload.generation
    if written is not None and written.sequences:
        yield from _written(workload, plan, run, written, share)
    if workload.evaluated is not None:
        yield from _answered(workload, plan, run, workload.evaluated)
    if asked is None or not asked.scored:
        return
    if asked.engine or asked.reference in ("resident", "base"):
        yield from _scored(workload, plan, run, asked)
    if asked.engine:
        yield from lasting(_handed(workload, plan), At.HANDING_OVER, At.HANDING_OVER)


def _whole(workload: Workload, plan: Sharding, run: Pass, *, follows: bool = False) -> Whole:
    """The parameters that a pass which keeps nothing gathers under a layout.

    `follows`: whether it comes right after a step, so that stage 3 knows the order of the modules
    and fetches ahead; another order, or hooks that are set again, invalidate it (deepspeed 0.19.8
    `runtime/zero/partitioned_param_coordinator.py`, `_invalidate_trace`; trl 1.16
    `models/utils.py`, `add_hooks`).
    """
    if plan.fsdp.version:
        return whole_in_passing(workload, plan)
    if plan.stage < PARAMETERS:
        return Whole()
    end = gathered(plan, checkpointed=run.checkpointed)
    return Whole(layers={**end, **fetched(plan)} if follows else end, end=end)


def _casting_nothing(workload: Workload, run: Pass) -> Pass:
    """The pass in which `generate` runs: no autocast reaches the model that PEFT wraps.

    accelerate 1.15 `accelerator.py`, `prepare_model`, casts in the forward pass of the model that
    it is given, PEFT's model, which peft 0.21 `peft_model.py`, `generate`, bypasses.
    """
    if not (workload.adapted and run.states.autocast):
        return run
    return replace(run, states=replace(run.states, autocast=False), casts_adapters=False)


def _copies(workload: Workload, run: Pass) -> tuple[Sizes, Sizes]:
    """Weight copies that autocast keeps in generation, and the output projection's copy."""
    widths, counts = arithmetic(workload, run.states, main_part(workload)), count(workload)
    return evaluation_casts(counts, widths, run), head_cast(counts, widths)


def _of_layer(workload: Workload, run: Pass) -> int:
    """Bytes of one layer's working memory for one sample."""
    layer = total(activations(workload, run).forward) + total(adapting(workload, run))
    return layer * sequences_of(workload)


def _terms(
    moments: _Moments, whole: Whole, copies: Sizes, told: tuple[Sizes, Sizes], put: _Put
) -> Iterator[Term]:
    """Terms at the moments of prompts and of the last token, with parameters gathered for them.

    `copies`: other sizes at these moments; `told`: the sizes of the answers at both.
    """
    read, written = told
    held = [(moments.prompt, whole.layers, read), (moments.answers, whole.layers, written)]
    if total(whole.end) > total(whole.layers):
        held.append((moments.prompt_head, whole.end, _cached(read)))
        held.append((moments.head, whole.end, written))
    if total(whole.gathering):
        held.append((moments.gathering, whole.gathering, _cached(written)))
    if total(whole.begins):
        held.append((moments.prompt_gathering, whole.begins, {}))
    for moment, made_whole, answers in held:
        yield from lasting(copies, moment, moment)
        yield from lasting(made_whole, moment, moment)
        yield from put(answers, moment)


def _cached(held: Sizes) -> Sizes:
    return {name: size for name, size in held.items() if name == "key-value cache"}


def _written(
    workload: Workload, plan: Sharding, run: Pass, asked: Generation, share: int
) -> Iterator[Term]:
    """Terms of all answers of a step, with parameters that `ds3_gather_for_generation` gathers."""
    preference, answering = workload.preference, _casting_nothing(workload, run)
    copies, head = _copies(workload, answering)
    weight = max(total(head), plan.counts.expanded * EXPANDED)
    told = (
        prompting(workload, plan, asked, _of_layer(workload, answering), share),
        _at_once(generating(workload, plan, asked, share), weight),
    )
    follows = preference is not None and preference.engine
    whole = _whole(workload, plan, run, follows=follows)
    if asked.gathers and plan.deepspeed:
        whole = Whole()
    elif plan.fsdp.version == 1:
        whole = _summoned(workload, plan, whole)

    def put(answers: Sizes, moment: Moment) -> Iterable[Term]:
        return lasting(answers, moment, moment)

    yield from _terms(_IN_TRAINING, whole, copies, told, put)


def _at_once(written: Sizes, weight: float) -> Sizes:
    """Sizes of a token or, if larger, of a weight that is copied or expanded for its product.

    Layers and the head run one after the other, so only one of them exists beside the cache.
    """
    steps = {name: size for name, size in written.items() if name not in _STAYS}
    if weight <= sum(steps.values()):
        return written
    kept = {name: size for name, size in written.items() if name in _STAYS}
    return {**kept, "weight casts": weight}


def _summoned(workload: Workload, plan: Sharding, whole: Whole) -> Whole:
    """FSDP 1's root unit in its stored dtype, with autocast's copy of its output projection.

    trl 0.15.2 to 1.16.0 `grpo_trainer.py`: `summon_full_params(recurse=False)`.
    """
    units, narrow = units_of(workload, plan.fsdp, plan.states), BYTES[workload.precision.compute]
    wide = units.root.size * (plan.parameter / narrow - 1) if units.root.trained else 0.0
    added = {"full parameters": max(wide, 0.0)} if plan.states.autocast else {}
    cast = {"weight casts": float(narrow * plan.counts.output)} if added else {}
    return whole._replace(layers={**whole.layers, **added}, end={**whole.end, **added, **cast})


def _answered(workload: Workload, plan: Sharding, run: Pass, asked: Generation) -> Iterator[Term]:
    """Terms of evaluation's answers to each sample of its batch: prompts and last token."""
    answering = _casting_nothing(workload, run)
    copies, head = _copies(workload, answering)
    summons = gathered_for_generation(workload, plan)
    whole = Whole(summons) if summons else _whole(workload, plan, run)
    of_layer, tokens = _of_layer(workload, answering), text_tokens(workload)
    states = generating_states(workload, plan.states)
    told = (
        reading(workload, states, asked, of_layer, tokens),
        writing(workload, states, asked),
    )
    kept = answered(asked, plan.shards)
    expanded = {"expanded weight": float(plan.counts.expanded * EXPANDED)}

    def put(answers: Sizes, moment: Moment) -> Iterator[Term]:
        yield from of_samples(answers, moment, moment, asked.beams)
        yield from of_samples(kept, moment, moment)
        if moment == At.ANSWERS:
            yield from lasting(max(head, expanded, key=total), moment, moment)

    yield from _terms(_IN_EVALUATION, whole, copies, told, put)


def _scored(workload: Workload, plan: Sharding, run: Pass, asked: Preference) -> Iterator[Term]:
    """Passes that keep nothing, one micro batch at a time, over all generated answers.

    They are run by the reference, if there is one, and by the model itself if vLLM generated (trl
    0.27.2 to 1.16.0 `trainer/grpo_trainer.py`, `_generate_and_score_completions`:
    `vllm_importance_sampling_correction`). Otherwise the step's own pass gives the probabilities
    with which the answers were generated: `steps_per_generation` is the accumulation unless it is
    set.
    """
    whole, number = _whole(workload, plan, run, follows=asked.engine), asked.sequences
    layer = activations(workload, run).forward
    layer = {**layer, **adapting(workload, run)} if asked.engine else layer
    held = [
        (At.SCORING, whole.end, evaluated(workload, run)),
        (At.SCORING_LAYERS, whole.layers, layer),
    ]
    for moment, sizes in (
        (At.SCORING_GATHERING, whole.gathering),
        (At.SCORING_BEGINS, whole.begins),
    ):
        if total(sizes):
            held.append((moment, sizes, embedded(workload, run)))
    # autocast keeps copies of what can be trained alone
    copies = _copies(workload, run)[0] if asked.engine else {}
    for moment, made_whole, made in held:
        yield from lasting({**copies, **made_whole}, moment, moment)
        yield from of_samples(made, moment, moment, number)
    buffers = {"loss buffers": losing(workload, run).loss.fixed}
    yield from lasting(buffers, At.SCORING, At.SCORING)


def _handed(workload: Workload, plan: Sharding) -> Sizes:
    """Parameters that are gathered to be handed to vLLM, with adapters merged into them.

    They are gathered one at a time, but all at once with adapters and ZeRO stage 3 (trl 0.27.2 to
    1.16.0 `generation/vllm_generation.py`, `_iter_named_params`, before it `_move_model_to_vllm`).
    The list of gathered parameters keeps packed weights, which others replace.
    """
    sharded = plan.stage == PARAMETERS
    size = plan.parameter if plan.counts.trained else BYTES[plan.states.weights]
    if workload.adapted and not plan.fsdp.version:
        whole = size * (plan.counts.base + plan.counts.adapters) * sharded
        return {
            "gathered parameters": float(whole),
            "weights as they were": packed_before(workload),
            **merged(workload, plan, repeated=True),
        }
    largest = max((prod(m.shape) for m in workload.architecture.modules), default=0)
    return {"gathered parameters": float(size * largest * sharded)}
