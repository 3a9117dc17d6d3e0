"""Rows of flags that sd-scripts shares with musubi-tuner, which derives from it."""

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tunec.compiler.target import Entry, Json
from tunec.targets.read_only import as_it_is, observed

Values = Mapping[str, Any]
Found = Mapping[str, Json]
Optimizers = Mapping[str, tuple[str, str]]
"""The slot's name and kernel of each optimizer, by its name in lower case."""

ADAPTER: Final[Values] = {
    "adapter.kind": "none",
    "adapter.rank": 0,
    "adapter.alpha": 0.0,
    "adapter.dropout": 0.0,
    "adapter.dora": False,
    "adapter.targets": (),
}
"""The values of the adapter's slots without an adapter."""


def arguments(words: Json) -> Values | None:
    """The values in words of the form `name=value`; None if a word has another form."""
    found: dict[str, Any] = {}
    for word in [words] if isinstance(words, str) else words or ():
        name, equals, text = str(word).partition("=")
        if not equals:
            return None
        found[name] = literal(text)
    return found


def literal(text: str) -> Any:
    """The value of a Python literal; the text itself if it is none."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def sides(resolution: Json) -> Values:
    """The sides in `512`, `"512"` or `"512,768"`; empty for another form."""
    words = resolution if isinstance(resolution, list) else str(resolution).split(",")
    if len(words) not in (1, 2) or not all(str(each).strip().isdigit() for each in words):
        return {}
    return {"data.image_width": int(words[0]), "data.image_height": int(words[-1])}


SCHEDULES: Final = (
    "linear|cosine|cosine_with_restarts|polynomial|constant|constant_with_warmup|inverse_sqrt|"
    "reduce_lr_on_plateau|cosine_with_min_lr|cosine_warmup_with_min_lr|warmup_stable_decay|adafactor|"
    "piecewise_constant|"
)
"""transformers 4.36 to 4.54 trainer_utils.py `SchedulerType`, and the schedules of the scripts."""


# ── optimizer ────────────────────────────────────────────────────────────────────────────────────

OPTIMIZER_SLOTS: Final = (
    *("optimizer.name", "optimizer.kernel", "optimizer.beta1", "optimizer.beta2"),
    *("optimizer.epsilon", "optimizer.weight_decay"),
)


def optimizer_slots(known: Optimizers, name: str, words: Json) -> Values:
    """The slots for an optimizer's name and arguments; empty if one of them has no slot."""
    own, told = known.get(name), arguments(words)
    if own is None or told is None or told.keys() - {"weight_decay", "betas", "eps"}:
        return {}
    name, kernel = own
    is_lion = "lion" in name
    betas = told.get("betas", (0.9, 0.99) if is_lion else (0.9, 0.999))
    if not isinstance(betas, tuple | list) or len(betas) != 2:
        return {}
    values = dict(zip(OPTIMIZER_SLOTS, (name, kernel, *betas, told.get("eps", 1e-8)), strict=False))
    decay = told.get("weight_decay", 0.0 if is_lion else 0.01)
    left_out = ("optimizer.epsilon",) if is_lion else ()
    said = {**values, "optimizer.weight_decay": float(decay)}
    return {slot: value for slot, value in said.items() if value != "" and slot not in left_out}


# ── length and rate ──────────────────────────────────────────────────────────────────────────────

_CYCLES: Final = "lr_scheduler_num_cycles"
_RATES: Final = (
    "lr_scheduler",
    "lr_warmup_steps",
    _CYCLES,
    "lr_scheduler_power",
    "lr_scheduler_min_lr_ratio",
)
_SHAPE: Final = (
    "schedule.kind",
    "schedule.arguments",
    "schedule.warmup_steps",
    "schedule.warmup_share",
)
_KINDS: Final = (
    *("constant", "constant_with_warmup", "linear", "cosine", "cosine_with_restarts"),
    *("cosine_with_min_lr", "polynomial"),
)


def _shape(found: Found) -> Values:
    kind = found.get("lr_scheduler", "constant")
    if kind not in _KINDS:
        return {}
    warmup = found.get("lr_warmup_steps") or 0
    if isinstance(warmup, str):
        return {}
    length = (
        {"schedule.warmup_share": warmup, "schedule.warmup_steps": None}
        if isinstance(warmup, float) and warmup < 1
        else {"schedule.warmup_steps": int(warmup), "schedule.warmup_share": None}
    )
    return {"schedule.kind": kind, "schedule.arguments": tuple(_arguments(kind, found)), **length}


def _arguments(kind: str, found: Found) -> Iterator[tuple[str, Any]]:
    """The arguments of transformers' schedules besides length and warmup."""
    cycles, power = found.get(_CYCLES, 1), found.get("lr_scheduler_power", 1)
    if kind == "cosine_with_restarts" and cycles != 1:
        yield "num_cycles", cycles
    if kind == "cosine_with_min_lr":
        yield "min_lr_rate", found.get("lr_scheduler_min_lr_ratio")
    if kind == "polynomial" and power != 1:
        yield "power", power


def _length(found: Found) -> Values:
    """The length; epochs override steps."""
    epochs = found.get("max_train_epochs")
    if epochs is not None:
        return {"schedule.epochs": float(epochs), "schedule.steps": None}
    return {"schedule.epochs": None, "schedule.steps": found.get("max_train_steps", 1600)}


def _saving(found: Found) -> Values:
    steps, epochs = found.get("save_every_n_steps"), found.get("save_every_n_epochs")
    if steps and epochs is None:
        return {"schedule.save_steps": steps}
    return {"schedule.save_steps": None} if epochs == 1 and not steps else {}


def schedule_rows(
    optimizer_of: Callable[[Found], str], scheduler: str, train: str
) -> tuple[Entry, ...]:
    """The rows of length and learning rate; the texts cite the schedule and the training loop."""

    def shape(found: Found) -> Values:
        return {} if optimizer_of(found).endswith("schedulefree") else _shape(found)

    return (
        observed(
            (*_RATES, "optimizer_type"),
            _SHAPE,
            shape,
            scheduler,
            absent={
                "schedule.kind": "constant",
                "schedule.arguments": (),
                "schedule.warmup_steps": 0,
            },
        ),
        observed(
            ("max_train_epochs", "max_train_steps"),
            ("schedule.epochs", "schedule.steps"),
            _length,
            f"{train}: override steps",
            absent={"schedule.steps": 1600, "schedule.epochs": None},
        ),
        observed(
            ("save_every_n_steps", "save_every_n_epochs"),
            ("schedule.save_steps",),
            _saving,
            f"{train}: the weights alone, unless save_state is given",
        ),
    )


def _trackers(found: Found) -> Values:
    with_, folder = found.get("log_with"), found.get("logging_dir")
    if with_ == "all":
        return {}
    trackers = (with_,) if with_ else ("tensorboard",) if folder else ()
    return {"runtime.report_to": trackers}


def run_rows(accelerator: str, train: str) -> tuple[Entry, ...]:
    """The rows around the training loop; the texts cite the accelerator and the loop."""
    return (
        as_it_is("seed", "runtime.seed", f"{train}: set_seed"),
        as_it_is("output_dir", "runtime.output", train),
        observed(
            ("log_with", "logging_dir"),
            ("runtime.report_to",),
            _trackers,
            accelerator,
            absent={"runtime.report_to": ()},
        ),
        as_it_is("max_data_loader_n_workers", "runtime.dataloader_workers", train, 8),
    )
