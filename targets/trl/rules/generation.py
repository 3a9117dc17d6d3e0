"""Generation while training with rewards."""

import re
from collections.abc import Iterator
from math import gcd, inf
from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.checks.keys.fields import is_patched
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.launch import BESIDE_TRL
from tunec.compiler.lints.facts.training_loop import (
    GROUPED,
    grouped,
    preferences,
    real,
    shared,
    trl,
    whole,
)
from tunec.compiler.lints.kinds import fields_of
from tunec.compiler.lints.rule import Consequence, Finding, keys, rule
from tunec.schemas.frozen import replace


@rule("error", "parse", consumers=("trl>=0.18",), reads=grouped("generation_batch_size"))
def generation_batch_given_twice(run: LintContext) -> Iterator[Finding]:
    """The generation batch is given twice, or is not a multiple of the batch of a step."""
    for document, name in preferences(run):
        batch = trl(document, "generation_batch_size")
        if name != "grpo" or batch is None:
            continue
        steps = trl(document, "steps_per_generation")
        if steps is not None:
            yield Finding(
                "generation_batch_size and steps_per_generation are both set",
                (batch.label("refused"), steps.label("", primary=False)),
                ("each follows from the other",),
                "keep one of them",
            )
        elif (global_ := _global(run, document)) and (whole(batch.value) or 0) % global_:
            yield Finding(
                f"generation_batch_size {batch.value} is no multiple of the {global_} samples "
                "that all processes take at once",
                (batch.label("refused"),),
                (),
                f"write {global_ * max(1, round((whole(batch.value) or 1) / global_))}",
            )


def _global(run: LintContext, document: Document) -> int | None:
    micro = shared(document, "per_device_train_batch_size")
    count, world = whole(micro.value) if micro is not None else None, run.data_parallel
    return count * world if count is not None and world is not None else None


class _Bounds(Struct, frozen=True):
    """The range of a key's values, and what happens to others."""

    key: str
    least: float
    most: float
    is_open: bool
    """Whether the lower bound is excluded."""
    consequence: Consequence
    why: str


_LOOKED_AT: Final = "the sampler checks it when the first answer is generated"
_BOUNDS: Final = (
    _Bounds(
        "num_iterations", 1, inf, False, "silent", "no batch is drawn: training ends immediately"
    ),
    _Bounds("steps_per_generation", 1, inf, False, "step", "the batch of answers is of that size"),
    _Bounds("max_completion_length", 1, inf, False, "init", "`max_new_tokens` has to be above 0"),
    _Bounds("repetition_penalty", 0, inf, True, "step", f"{_LOOKED_AT}; 1.0 is none"),
    _Bounds("min_p", 0, 1, False, "step", _LOOKED_AT),
    _Bounds("top_p", 0, 1, True, "silent", "outside this range nothing is cut off"),
    _Bounds(
        "top_entropy_quantile", 0, 1, False, "step", "a quantile lies in the range from 0 to 1"
    ),
)


_TOP: Final = _Bounds("top_k", 0, inf, False, "step", _LOOKED_AT)
"""transformers 5.23.0 generation/logits_process.py `TopKLogitsWarper`, run: "has to be a strictly
positive integer, but is -1"; 0 means none, and for vLLM -1 means none too."""


@rule("error", "step", consumers=("trl",), reads=grouped(*(each.key for each in (*_BOUNDS, _TOP))))
def generation_number_refused(run: LintContext) -> Iterator[Finding]:
    """A value of GRPO or RLOO that generation cannot use."""
    for document, method in preferences(run):
        by_vllm = trl(document, "use_vllm")
        plain = by_vllm is None or by_vllm.value in (False, "false")
        plain = plain and _BY_UNSLOTH.search(document.text) is None
        for bounds in (*_BOUNDS, *((_TOP,) if plain else ())) if method in GROUPED else ():
            at = trl(document, bounds.key)
            number = real(at.value) if at is not None else None
            if at is not None and number is not None and not _is_within(number, bounds):
                yield _out_of_range(at, bounds)


_BY_UNSLOTH: Final = re.compile(r"\bfast_inference\s*=\s*True")
"""unsloth 2025.2 to 2026.10 models/rl.py: a model that is loaded so generates by vLLM, whose -1 is
every token."""


def _is_within(number: float, bounds: _Bounds) -> bool:
    is_above = number > bounds.least if bounds.is_open else number >= bounds.least
    return is_above and number <= bounds.most


def _out_of_range(at: Place, bounds: _Bounds) -> Finding:
    start = "above" if bounds.is_open else "from"
    end = f" to {bounds.most:g}" if bounds.most < inf else ""
    return Finding(
        f"{at.path} {at.value} is not {start} {bounds.least:g}{end or ' on'}",
        (at.label("cannot be used"),),
        (bounds.why,),
        "remove it" if bounds.most < inf or bounds.is_open or bounds is _TOP else "write 1 or more",
        consequence=bounds.consequence,
        severity="warning" if bounds.key == "top_p" else None,
    )


_CHECKED: Final = "axolotl>=0.17"
_DEFAULTS: Final = {
    "num_generations": 8,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
}
"""trl 0.17.0 to 1.16.0 grpo_config.py; the batch is transformers' default."""


@rule(
    "error",
    "init",
    consumers=("trl",),
    reads=(
        *keys("grpo|rloo", "num_generations", "generation_batch_size"),
        *keys("grpo|rloo", "per_device_train_batch_size"),
        "axolotl:trl.num_generations",
    ),
)
def generations_do_not_divide(run: LintContext) -> Iterator[Finding]:
    """The generation batch of GRPO is not a multiple of the group size."""
    for document, name in preferences(run):
        if name in ("grpo", "rloo"):
            if document.format == "python" and is_patched(document.text):
                continue  # unsloth 2025.2 to 2026.10 models/rl.py raises the batch itself
            for each in _groups(run, document):
                is_early = each.consequence is None and document.kind != "axolotl"
                is_early = is_early and run.runs("trl>=0.18") is True
                yield replace(each, consequence="parse") if is_early else each


def _groups(run: LintContext, document: Document) -> Iterator[Finding]:
    asked = trl(document, "num_generations")
    group = _number(document, asked, "num_generations")
    if group is None or (document.kind == "axolotl" and asked is None):
        return
    if asked is not None and group < 2:
        yield Finding(
            "num_generations is 1: a group of one has no advantage",
            (asked.label("refused"),),
            ("the advantage is the distance from the mean of the group",),
            "write 2 or more",
            consequence="parse" if _is_checked_by_axolotl(run, document) else None,
        )
        return
    if document.kind == "axolotl":
        if _is_checked_by_axolotl(run, document):
            yield from _of_axolotl(run, document, (group, asked))
        return
    world = run.data_parallel
    if world is None:
        return
    micro_at = shared(document, "per_device_train_batch_size")
    micro = _number(document, micro_at, "per_device_train_batch_size")
    if micro is None:
        return
    yield from _product(run, document, (group, asked), (micro, micro_at), world)


def _is_checked_by_axolotl(run: LintContext, document: Document) -> bool:
    return document.kind == "axolotl" and run.runs(_CHECKED) is not False


def _of_axolotl(
    run: LintContext, document: Document, asked: tuple[int, Place | None]
) -> Iterator[Finding]:
    """Axolotl checks one process's batch, which needs a group for each process."""
    group, at = asked
    given, micro_at = trl(document, "generation_batch_size"), document.get("micro_batch_size")
    steps_at = document.get("gradient_accumulation_steps")
    micro, steps = (whole(each.value) if each else 1 for each in (micro_at, steps_at))
    batch = whole(given.value) if given is not None else (micro or 1) * (steps or 1)
    if at is None or batch is None:
        return
    beside = (given,) if given is not None else (micro_at, steps_at)
    if batch % group == 0:
        yield from _too_few_groups(run, (group, at), batch, beside)
        return
    yield Finding(
        f"generation batch {batch} is no multiple of num_generations {group}",
        (at.label(""), *(each.label("", primary=False) for each in beside if each is not None)),
        (
            ()
            if given is not None
            else (f"{micro} x {steps} = {batch}: micro_batch_size x gradient_accumulation_steps",)
        ),
        f"write gradient_accumulation_steps: {group // gcd(group, micro or 1)}"
        if given is None
        else f"write generation_batch_size: {-(-batch // group) * group}",
        severity="warning" if run.runs(_CHECKED) is None else None,
        consequence="parse",
    )


def _too_few_groups(
    run: LintContext, asked: tuple[int, Place], batch: int, beside: tuple[Place | None, ...]
) -> Iterator[Finding]:
    """The batch of one process holds fewer groups than there are processes."""
    group, at = asked
    world = run.world.value if run.world is not None else None
    if not isinstance(world, int) or world < 2 or batch >= group * world:
        return
    yield Finding(
        f"generation batch {batch} holds fewer than {world} groups of {group}",
        (at.label(""), *(each.label("", primary=False) for each in beside if each is not None)),
        (f"Axolotl wants a group for each of {world} processes in the batch of one",),
        f"let micro_batch_size x gradient_accumulation_steps be {group * world} or more",
        severity="warning" if run.runs(_CHECKED) is None else None,
        consequence="parse",
    )


def _product(
    run: LintContext,
    document: Document,
    group: tuple[int, Place | None],
    micro: tuple[int, Place | None],
    world: int,
) -> Iterator[Finding]:
    given = trl(document, "generation_batch_size")
    steps, factor = _steps(run, document)
    batch = whole(given.value) if given is not None else micro[0] * world * steps
    if batch is None or batch % group[0] == 0:
        return
    places = [at for at in (group[1], micro[1], given) if at is not None]
    if not places:
        return
    near = _nearest_divisor(batch, group[0])
    total = f"{micro[0]} x {world}{f' x {steps}' if factor else ''}"
    yield Finding(
        f"generation batch {batch} is no multiple of num_generations {group[0]}",
        tuple(at.label("", primary=number == 0) for number, at in enumerate(places)),
        (
            f"{total} = {batch}: samples a device x processes{f' x {factor}' if factor else ''}",
            "a process that only generates does not count",
        )
        if given is None
        else (),
        f"write num_generations: {near}" if near else "raise the batch",
        sum=(
            Term("samples a device", micro[0], ""),
            Term("processes", world, ""),
            Term("accumulation", steps, ""),
        )
        if given is None
        else (),
        certain=group[1] is not None or not _has_own_flags(document),
    )


_FAR: Final = 1000
"""How far from the requested group size another one is searched."""


def _nearest_divisor(batch: int, group: int) -> int | None:
    """The group size nearest to the requested one that divides a batch."""
    around = range(max(2, group - _FAR), min(batch, group + _FAR) + 1)
    fit = (each for each in around if batch % each == 0)
    return min(fit, key=lambda each: abs(each - group), default=None)


def _has_own_flags(document: Document) -> bool:
    """Whether a script has flags besides TRL's: its trainer may build groups differently.

    Deep-Agent/R1-V bbbbe3d src/r1-v/src/open_r1/trainer: all answers to a prompt are made in one
    process.
    """
    known = fields_of("grpo") | fields_of("hf") | BESIDE_TRL
    return document.format == "shell" and any(
        "." not in path and path not in known for path in document.found
    )


def _steps(run: LintContext, document: Document) -> tuple[int, str]:
    """The micro batches of one generation and the key that sets them; empty before 0.16."""
    given = trl(document, "steps_per_generation")
    if given is not None and (count := whole(given.value)) is not None:
        return count, "steps_per_generation"
    if run.runs("trl<0.16"):
        return 1, ""
    at = shared(document, "gradient_accumulation_steps")
    count = _number(document, at, "gradient_accumulation_steps")
    return (count or 1), "gradient_accumulation_steps"


def _number(document: Document, at: Place | None, name: str) -> int | None:
    if at is not None:
        return whole(at.value)
    if document.kind == "rloo" and name == "num_generations":
        return None  # 2 in trl 0.28, and rloo_k before
    return None if name in document.unknown else _DEFAULTS[name]


@rule("error", "step", consumers=("trl",), reads=grouped("temperature"))
def temperature_of_zero(run: LintContext) -> Iterator[Finding]:
    """GRPO samples its completions at temperature 0."""
    for document, name in preferences(run):
        at = trl(document, "temperature")
        value = real(at.value) if at is not None else None
        if name == "grpo" and at is not None and value is not None and value <= 0:
            yield Finding(
                f"temperature is {at.value}: every completion of a group is the same",
                (at.label("nothing to compare"),),
                (
                    "equal completions have equal rewards, and so no advantage",
                    "log-probabilities are divided by the temperature too",
                ),
                "write 1.0",
            )
