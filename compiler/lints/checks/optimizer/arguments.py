"""Numbers and arguments of the optimizer."""

from collections.abc import Iterator
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import Place, also
from tunec.compiler.lints.facts.training_loop import is_number
from tunec.compiler.lints.rule import Finding, keys, rule
from tunec.schemas.frozen import replace

_BETAS: Final = ("adam_beta1", "adam_beta2")
_EVERY: Final = (*_BETAS, "adam_epsilon")
_NONE: Final = frozenset(
    {
        *("adafactor", "sgd", "adagrad", "rmsprop", "rmsprop_bnb", "rmsprop_bnb_8bit"),
        *("rmsprop_bnb_32bit", "galore_adafactor", "galore_adafactor_layerwise", "lomo", "adalomo"),
        "schedule_free_sgd",
    }
)
"""Optimizers that get none of the three numbers."""
_LION: Final = frozenset({"lion_8bit", "lion_32bit", "paged_lion_8bit", "paged_lion_32bit"})
"""Optimizers that only get the betas."""


@rule("warning", "silent", consumers=("transformers",), reads=("trainer:optim",))
def adam_numbers_unread(run: LintContext) -> Iterator[Finding]:
    """Adam's numbers are set beside an optimizer that does not get them."""
    if run.said("deepspeed", "optimizer.type") is not None:
        return  # that one is used
    for document in run.of("trainer"):
        optim = document.get("optim")
        if optim is None or not isinstance(optim.value, str):
            continue
        lost = _EVERY if optim.word in _NONE else _EVERY[2:] if optim.word in _LION else ()
        for key in lost:
            at = document.get(key)
            if at is not None and at.value is not None:
                yield Finding(
                    f"{at.path} does nothing: {optim.value} does not receive it",
                    (at.label("not read"), optim.label("", primary=False)),
                    (),
                    "remove it",
                    None if document.is_view else Fix((at.removed(),), "safe"),
                )


_UNREAD: Final = frozenset(
    {
        *("adafactor", "adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_8bit"),
        *("adamw_bnb_8bit", "paged_adamw_8bit", "paged_adamw_32bit", "lion_8bit", "lion_32bit"),
        *("paged_lion_8bit", "paged_lion_32bit"),
    }
)
"""Optimizers whose builder does not read `optim_args`: transformers 4.40.2 to 5.23.0 trainer.py
`get_optimizer_cls_and_kwargs`, 5.6.2 to 5.23.0 trainer_optimizer.py."""


@rule("error", "init", consumers=("transformers",), reads=("trainer:optim_args",))
def optimizer_arguments(run: LintContext) -> Iterator[Finding]:
    """The optimizer does not read these arguments, or they cannot be parsed."""
    for document in run.of("trainer"):
        place, optim = document.get("optim_args"), document.get("optim")
        if place is None or document.is_view or not isinstance(place.value, str):
            continue
        parts = place.value.replace(" ", "").split(",")
        if place.value and any(part.count("=") != 1 for part in parts):
            yield _unreadable(place)
        elif place.value and "optim" not in document.unknown and _is_unread(optim):
            yield _unread(place, optim)


def _is_unread(optim: Place | None) -> bool:
    return optim is None or optim.word in _UNREAD


def _unreadable(place: Place) -> Finding:
    return Finding(
        f"optim_args {place.value!r} is not read",
        (place.label("key=value,key=value"),),
        ("ValueError when the optimizer is built: not enough values to unpack",),
        "write key=value pairs with commas between them",
    )


def _unread(place: Place, optim: Place | None) -> Finding:
    name = "the default optimizer" if optim is None else str(optim.value)
    return Finding(
        f"optim_args {place.value!r} does nothing: {name} takes none",
        (place.label("not looked at"), *also(optim)),
        ("betas, epsilon and weight decay have keys of their own: adam_beta1, adam_epsilon, ...",),
        "remove it",
        Fix((place.removed(),), "safe"),
        severity="warning",
        consequence="silent",
    )


@rule("error", "silent", consumers=("transformers<5",), reads=("trainer:adafactor",))
def optimizer_given_twice(run: LintContext) -> Iterator[Finding]:
    """`adafactor: true` beside another optimizer, which it replaces."""
    for document in run.of("trainer"):
        old, new = document.get("adafactor"), document.get("optim")
        if old is None or new is None or old.value is not True or new.value == "adafactor":
            continue
        if run.runs("transformers>=5") is True or document.is_view:
            continue
        yield Finding(
            f"adafactor: true replaces optim {new.value}",
            (new.label("not used"), old.label("used", primary=False)),
            ("the older key overrides optim, whatever it says",),
            "remove adafactor, or write optim: adafactor",
            Fix((old.removed(),), "unsafe"),
        )


_OF_TORCH: Final = ("SGD", "Adafactor", "Adadelta", "Adamax", "NAdam", "RAdam", "RMSprop")
_FLOORS: Final = ("learning_rate", "adam_epsilon")
_BELOW: Final = "optimizer.params."
_UNPACKED: Final = "which are taken apart"
"""deepspeed 0.19.8 ops/adam/fused_adam.py `FusedAdam.step`: beta1, beta2 = group["betas"];
cpu_adam.py `DeepSpeedCPUAdam.__init__`: betas[1]."""


@rule(
    "error",
    "init",
    consumers=("transformers", "deepspeed"),
    reads=(
        *keys("trainer", *_BETAS, *_FLOORS),
        *keys("deepspeed", *(f"{_BELOW}{each}" for each in ("lr", "eps", "betas", "nesterov"))),
    ),
)
def optimizer_number_refused(run: LintContext) -> Iterator[Finding]:
    """A rate, a beta, an epsilon or a momentum that the optimizer refuses."""
    for key in _BETAS:
        for place in run.each("trainer", key):
            if is_number(place.value) and not 0 <= place.value < 1:
                yield _finding(place, "a decay lies in [0, 1)")
    yield from _below(run)
    yield from _of_sgd(run)
    for place in run.each("deepspeed", f"{_BELOW}betas"):
        why = None if place.value == "auto" else _of_betas(place.value)
        if why is not None:
            is_late = why.endswith(_UNPACKED) and not _is_offloaded(run)
            found = _finding(place, why)
            yield replace(found, consequence="step") if is_late else found


def _is_offloaded(run: LintContext) -> bool:
    device = run.effective("deepspeed", "zero_optimization.offload_optimizer.device")
    return device.value in ("cpu", "nvme")


def _below(run: LintContext) -> Iterator[Finding]:
    for kind, names in (("trainer", _FLOORS), ("deepspeed", (f"{_BELOW}lr", f"{_BELOW}eps"))):
        for key in names:
            for place in run.each(kind, key):
                if is_number(place.value) and place.value < 0:
                    yield _finding(place, "it cannot be negative")
                elif key == f"{_BELOW}eps" and _is_of_adafactor(place):
                    yield _finding(place, "torch's Adafactor has a pair of them")
                elif kind == "deepspeed" and _is_text_to_torch(place):
                    yield _finding(place, "text cannot be compared with 0")


def _of_sgd(run: LintContext) -> Iterator[Finding]:
    """Report Nesterov's momentum without a positive momentum, or with dampening."""
    for place in run.each("deepspeed", f"{_BELOW}nesterov"):
        numbers = [place.document.value(f"{_BELOW}{key}", 0) for key in ("momentum", "dampening")]
        is_of_sgd = place.document.value("optimizer.type") == "SGD"
        if not is_of_sgd or place.value is not True or not all(map(is_number, numbers)):
            continue
        if numbers[0] <= 0 or numbers[1] != 0:
            why = "Nesterov momentum requires a momentum and zero dampening"
            yield _finding(place, why, "write momentum, such as 0.9, and no dampening")


def _is_of_adafactor(place: Place) -> bool:
    is_pair = isinstance(place.value, list)
    return place.document.value("optimizer.type") == "Adafactor" and not is_pair


def _is_text_to_torch(place: Place) -> bool:
    """Whether an optimizer of torch gets a string; for DeepSpeed's number-as-text reports it."""
    kind = place.document.value("optimizer.type")
    is_text = isinstance(place.value, str) and place.value != "auto"
    return is_text and isinstance(kind, str) and kind in _OF_TORCH


def _of_betas(value: Any) -> str | None:
    if not isinstance(value, list):
        return "it is a list of two numbers"
    if len(value) != 2:
        return f"it is a list of two numbers, {_UNPACKED}"
    if not all(is_number(each) for each in value):
        return "its items are numbers: text cannot be compared with 0"
    if not all(0 <= each < 1 for each in value):
        return "a decay lies in [0, 1)"
    return None


def _finding(place: Place, why: str, mend: str = "write another number") -> Finding:
    return Finding(
        f"`{place.path}` cannot be {place.value}",
        (place.label("refused"),),
        (f"{why}; the optimizer is built when training starts",),
        "write betas as [0.9, 0.999]" if place.path.endswith("betas") else mend,
    )
