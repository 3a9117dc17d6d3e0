"""Numbers that verl compares before training: divisors and minima."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Term
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Document, Place
from tunec.compiler.lints.facts.model import has_whole_heads
from tunec.compiler.lints.facts.training_loop import is_whole
from tunec.compiler.lints.rule import Finding, keys, rule

_ACTOR: Final = "actor_rollout_ref.actor"
_ROLLOUT: Final = "actor_rollout_ref.rollout"
_TEACHER: Final = "distillation.teacher_models.teacher_model"
_LOSS: Final = "distillation.distillation_loss"


class _Sum(Struct, frozen=True):
    """Keys whose numbers are compared, and verl's defaults."""

    keys: tuple[str, ...]
    usual: tuple[int | None, ...]
    """The defaults; None: the key is required."""
    is_refused: Callable[..., bool]
    message: str
    help: str
    unless: tuple[str, ...] = ()
    """Switches that turn the comparison off."""
    only: tuple[str, Any] | None = None
    """A key and the value that turns the comparison on."""
    but: tuple[str, Any] | None = None
    """A key and the value that turns the comparison off."""


def _does_not_divide(whole: int, part: int) -> bool:
    return part > 0 and whole % part != 0


def _updates(section: str, usual: int | None) -> _Sum:
    return _Sum(
        (f"{section}.ppo_mini_batch_size", f"{section}.ppo_micro_batch_size"),
        (usual, None),
        _does_not_divide,
        "an update of {0} prompts does not divide into micro batches of {1}",
        f"write a divisor of {{0}}, or {section}.ppo_micro_batch_size_per_gpu",
        (f"{section}.use_dynamic_bsz",),
    )


def _devices(section: str, width: str) -> _Sum:
    return _Sum(
        (f"{section}.ppo_micro_batch_size", width, *_MACHINES),
        (None, 1, None, 1),
        lambda samples, width, each, nodes: samples * width < each * nodes,
        "a micro batch of {0} samples has fewer samples than devices",
        f"write {section}.ppo_micro_batch_size_per_gpu",
        (f"{section}.use_dynamic_bsz",),
    )


_MACHINES: Final = ("trainer.n_gpus_per_node", "trainer.nnodes")
_MEGATRON: Final = tuple(
    f"{_ACTOR}.megatron.{name}_parallel_size"
    for name in ("tensor_model", "pipeline_model", "context")
)
_ENGINE: Final = tuple(
    f"{_ROLLOUT}.{name}_parallel_size" for name in ("tensor_model", "data", "pipeline_model")
)
"""verl 0.8.0 to 0.9.1 workers/engine_workers.py, before them workers/fsdp_workers.py: the world
has to be divisible by an engine's."""
_POOL: Final = ("distillation.n_gpus_per_node", "distillation.nnodes")
_LENGTHS: Final = ("data.max_prompt_length", "data.max_response_length")

_SUMS: Final = (
    _updates(_ACTOR, 256),
    _updates("critic", None),
    _devices(_ACTOR, f"{_ACTOR}.ulysses_sequence_parallel_size"),
    _devices("critic", "critic.ulysses_sequence_parallel_size"),
    _devices("critic", "critic.veomni.ulysses_parallel_size"),
    _Sum(
        ("critic.ppo_mini_batch_size", "data.train_batch_size"),
        (None, 1024),
        lambda mini, whole: mini > whole,
        "an update of {0} prompts is more than a step has: {1}",
        "write critic.ppo_mini_batch_size: {1}, or less",
        ("critic.use_dynamic_bsz", f"{_ACTOR}.use_dynamic_bsz"),
    ),
    _Sum(
        (*_MACHINES, *_MEGATRON),
        (None, 1, None, 1, 1),
        lambda each, nodes, *widths: _does_not_divide(each * nodes, _product(widths)),
        "{0} devices do not divide into the widths of the model",
        "write widths whose product divides the devices",
        (f"{_ACTOR}.use_dynamic_bsz",),
        only=(f"{_ACTOR}.strategy", "megatron"),
    ),
    _Sum(
        (*_MACHINES, *_ENGINE),
        (None, 1, None, 1, 1),
        lambda each, nodes, *widths: _does_not_divide(each * nodes, _product(widths)),
        "{0} x {1} devices do not divide into engines of {2} x {3} x {4}",
        "write widths whose product divides the devices",
        ("rollout.n_gpus_per_node", "rollout.nnodes"),  # devices of their own
        but=(f"{_ROLLOUT}.name", "hf"),
    ),
    _Sum(
        (
            f"{_ROLLOUT}.expert_parallel_size",
            f"{_ROLLOUT}.tensor_model_parallel_size",
            f"{_ROLLOUT}.data_parallel_size",
        ),
        (None, 2, 1),
        lambda experts, tensors, copies: experts > 1 and experts != tensors * copies,
        "experts over {0} devices: vLLM and SGLang need {1} x {2}",
        "write the product of tensor_model_parallel_size and data_parallel_size",
        but=(f"{_ROLLOUT}.name", "trtllm"),
    ),
    _Sum(
        (
            f"{_ROLLOUT}.moe_tensor_parallel_size",
            f"{_ROLLOUT}.expert_parallel_size",
            f"{_ROLLOUT}.tensor_model_parallel_size",
        ),
        (None, None, 2),
        lambda tensors, experts, whole: min(tensors, experts) > 1 and tensors * experts != whole,
        "experts over {0} x {1} devices are not the {2} of the model",
        "write numbers whose product is tensor_model_parallel_size",
        only=(f"{_ROLLOUT}.name", "trtllm"),
    ),
    _Sum(
        (f"{_TEACHER}.inference.max_model_len", *_LENGTHS),
        (None, 512, 512),
        lambda most, prompt, answer: prompt + answer + 1 > most,
        "the teacher reads {0} tokens, and a sample has up to {1} + {2} and one more",
        "raise inference.max_model_len",
        only=("distillation.enabled", True),
    ),
    _Sum(
        (f"{_TEACHER}.inference.engine_kwargs.vllm.max_logprobs", f"{_LOSS}.topk"),
        (None, 32),
        lambda most, wanted: most < wanted,
        "vLLM returns {0} log-probabilities, and the loss compares {1}",
        "write max_logprobs: {1}, or more",
        only=(f"{_LOSS}.loss_mode", "forward_kl_topk"),
    ),
    _Sum(
        (*_POOL, f"{_TEACHER}.inference.tensor_model_parallel_size"),
        (8, 0, 2),
        lambda each, nodes, width: _does_not_divide(each * nodes, width),
        "{0} x {1} devices do not divide into teachers of {2}",
        "write a multiple of inference.tensor_model_parallel_size",
        only=("distillation.enabled", True),
    ),
)
"""verl 0.8.0 to 0.9.1 utils/config.py `validate_config`; workers/config/actor.py, critic.py,
rollout.py, distillation.py: `validate`, `__post_init__`. Defaults: trainer/config."""


def _product(widths: tuple[Any, ...]) -> int:
    product = 1
    for each in widths:
        product *= each
    return product


_OF_SEQUENCES: Final = tuple(
    f"{part}.ulysses_sequence_parallel_size" for part in (_ACTOR, "actor_rollout_ref.ref", "critic")
)
"""verl 0.8.0 to 0.9.1 models/transformers/monkey_patch.py `apply_monkey_patch`."""


@rule(
    "error",
    "init",
    consumers=("verl",),
    reads=keys("verl", *dict.fromkeys(key for each in _SUMS for key in each.keys), *_OF_SEQUENCES),
)
def number_refused_by_verl(run: LintContext) -> Iterator[Finding]:
    """Numbers that contradict each other."""
    for each in _SUMS:
        places = [run.said("verl", key) for key in each.keys]
        values = [_number(place, usual) for place, usual in zip(places, each.usual, strict=True)]
        if None not in values and _is_compared(run, each) and each.is_refused(*values):
            there = [place for place in places if place is not None]
            yield Finding(
                each.message.format(*values),
                tuple(place.label("", primary=place is there[0]) for place in there),
                (),
                each.help.format(*values),
            )
    yield from _heads(run)


def _heads(run: LintContext) -> Iterator[Finding]:
    """Attention heads that Ulysses cannot share out among the ranks of a sequence."""
    texts = run.model.architecture.stacks if run.model is not None else ()
    text = next((each for each in texts if each.part == "text"), None)
    engine = run.said("verl", f"{_ACTOR}.strategy") or run.said("verl", "model_engine")
    is_other = engine is not None and "fsdp" not in str(engine.value)
    if text is None or run.model is None or is_other:
        return
    for key in _OF_SEQUENCES:
        at = run.said("verl", key)
        if at is None or not is_whole(at.value) or at.value < 2 or has_whole_heads(text, at.value):
            continue
        yield Finding(
            f"{at.value} ranks of a sequence do not divide {text.heads} heads of {run.model.path}",
            (at.label("refused"),),
            ("Ulysses gives each rank whole heads of the whole sequence: AssertionError",),
            f"write a width that divides {text.heads}",
            sum=(
                Term("attention heads", text.heads, "heads"),
                Term("key and value heads", text.kv_heads, "heads"),
            ),
        )


def _number(place: Place | None, usual: int | None) -> int | None:
    value = usual if place is None else place.value
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_compared(run: LintContext, each: _Sum) -> bool:
    """Whether verl makes the comparison, as far as the files show."""
    if run.hides("verl", *each.keys, *each.unless):
        return False
    switches = (run.said("verl", key) for key in each.unless)
    if any(place is not None and place.value is not False for place in switches):
        return False
    is_other = each.but is not None and _holds(run, *each.but)
    return not is_other and (each.only is None or _holds(run, *each.only))


def _holds(run: LintContext, key: str, value: Any) -> bool:
    held = run.said("verl", key)
    return held is not None and held.value == value


@rule(
    "error",
    "init",
    consumers=("verl>=0.9",),
    reads=keys("verl", "distillation.enabled", "distillation.teacher_models"),
)
def teacher_refused_by_verl(run: LintContext) -> Iterator[Finding]:
    """A teacher has no model, or one of several has no key of its own."""
    for document in run.of("verl"):
        enabled = document.get("distillation.enabled")
        if enabled is None or enabled.value is not True:
            continue
        said = document.value("distillation.teacher_models")
        every = said if isinstance(said, dict) else {}
        others = {name: held for name, held in every.items() if name != _USUAL}
        wanted = _WANTED if others else _WANTED[:1]
        seen: set[object] = set()
        for name, held in (others or {_USUAL: every.get(_USUAL)}).items():
            known = held if isinstance(held, dict) else {}
            lacks = [key for key in wanted if known.get(key) is None]
            again = bool(others) and known.get("key") in seen
            seen.add(known.get("key"))
            if lacks or again:
                what = f"has no {' and no '.join(lacks)}" if lacks else "has the key of another"
                at = document.get(f"distillation.teacher_models.{name}") or enabled
                yield Finding(
                    f"the teacher {name} {what}",
                    (at.key_label("refused"),),
                    ("samples find their teacher by its key",) if others else (),
                    f"write {' and '.join(wanted)} of each, with a key of its own"
                    if others
                    else f"write distillation.teacher_models.{_USUAL}.model_path",
                )
        yield from _pool(document, enabled, others)


def _pool(document: Document, enabled: Place, others: Mapping[str, Any]) -> Iterator[Finding]:
    """The devices of several teachers must add up to those of their pool."""
    nodes, each = document.get(_POOL[1]), document.value(_POOL[0], 8)
    counts = [_devices_of(held) for held in others.values() if isinstance(held, dict)]
    if nodes is None or not counts or not is_whole(nodes.value) or not is_whole(each):
        return
    wanted, there = sum(count for count in counts if count is not None), each * nodes.value
    if None not in counts and wanted != there:
        yield Finding(
            f"teachers take {wanted} devices, and their pool has {there}",
            (nodes.label("refused"), enabled.label("", primary=False)),
            ("each takes its replicas x the widths of its engine",),
            f"write {wanted} devices, or other numbers of replicas",
        )


def _devices_of(teacher: Mapping[str, Any]) -> int | None:
    """The devices of a teacher; None if a number is missing."""
    engine = teacher.get("inference")
    held = engine if isinstance(engine, dict) else {}
    widths = [held.get(f"{name}_parallel_size", usual) for name, usual in _WIDTHS]
    numbers = (teacher.get("num_replicas"), *widths)
    return _product(numbers) if all(map(is_whole, numbers)) else None


_WIDTHS: Final = (("tensor_model", 2), ("data", 1), ("pipeline_model", 1))
"""workers/config/rollout.py `RolloutConfig`."""


_USUAL: Final = "teacher_model"
_WANTED: Final = ("model_path", "key", "num_replicas")
