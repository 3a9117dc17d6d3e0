"""The trainer's optimizer is overridden by an optimizer section in DeepSpeed's file."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_SAME: Final = {
    "adamw_torch": ("adamw", "adam"),
    "adamw_torch_fused": ("adamw", "adam"),
    "adamw_hf": ("adamw", "adam"),
    "lion_32bit": ("lion",),
    "sgd": ("sgd",),
    "adagrad": ("adagrad",),
    "rmsprop": ("rmsprop",),
}

_MADE_BY: Final = {
    "llamafactory": ("loraplus_lr_ratio", "use_badam", "use_adam_mini", "use_muon"),
    "axolotl": ("loraplus_lr_ratio", "lr_groups", "embedding_lr", "embedding_lr_scale"),
}
"""What a trainer's own `create_optimizer` is to look at: llamafactory 0.9.5 train/trainer_utils.py
`create_custom_optimizer`, axolotl 0.19.0 core/trainers/mixins/optimizer.py `OptimizerMixin`."""
_COMPARES: Final = "transformers>=4.57,<5"


def _check(run: Run) -> Iterator[Finding]:
    yield from _named(run)
    section = run.said("deepspeed", "optimizer.type", "optimizer")
    for kind, keys in _MADE_BY.items() if section is not None else ():
        asked = next((each for key in keys if (each := run.said(kind, key)) and each.value), None)
        if asked is not None and section is not None:
            yield Finding(
                f"{asked.path} does nothing beside DeepSpeed's optimizer",
                (asked.label("not read"), section.label("used", primary=False)),
                ("with a section optimizer the trainer is not asked to make one of its own",),
                "remove the section and add zero_allow_untested_optimizer",
            )


def _named(run: Run) -> Iterator[Finding]:
    section = run.said("deepspeed", "optimizer.type", "optimizer")
    asked, older = run.said("trainer", "optim"), run.said("trainer", "adafactor")
    kind = section.value if section is not None and isinstance(section.value, str) else None
    if section is not None and older is not None and older.value is True:
        if run.runs("transformers<5") is not False:
            yield _refused(run, older, section, kind)
        return
    if section is None or asked is None or not isinstance(asked.value, str):
        return
    if asked.value == "adafactor" and run.runs(_COMPARES) is True:
        yield _refused(run, asked, section, kind)
        return
    if kind is not None and kind.lower() in _SAME.get(asked.value, ()):
        return
    yield Finding(
        f"optim {asked.value} is overridden by DeepSpeed's {kind or 'optimizer'}",
        (asked.label("not used"), section.label("used", primary=False)),
        (
            (
                "a section optimizer in DeepSpeed's file always wins, and its states are those of "
                "its type"
            ),
        ),
        "remove the section and add zero_allow_untested_optimizer, or drop optim",
    )


def _refused(run: Run, asked: Place, section: Place, kind: str | None) -> Finding:
    return Finding(
        f"{asked.path} {str(asked.value).lower()} beside DeepSpeed's {kind or 'optimizer'}",
        (asked.label("refused"), section.label("", primary=False)),
        ("only one optimizer can be configured, and of this one the trainer asks",),
        f"remove the section and add zero_allow_untested_optimizer, or drop {asked.path}",
        severity=None if run.runs("transformers<5") else "warning",
        consequence="init",
    )


RULE = Rule(
    name="optimizer-overridden",
    severity="error",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        "transformers 4.40.2 to 5.23.0 integrations/deepspeed.py `deepspeed_optim_sched`",
        (
            "transformers 4.40.2 to 4.51.3 there: ValueError under args.adafactor; 4.57.1 and "
            "4.57.6: where optim is adafactor, which `adafactor: true` sets; 5.0.0 to 5.23.0: none"
        ),
    ),
    check=_check,
)
