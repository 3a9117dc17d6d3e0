"""An optimizer or a scheduler section in ds_config.json that does not name one."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.rule import Consequence, Finding, Rule
from tunec.compiler.lints.run import Run
from tunec.compiler.lints.zero.asked import stage_of

_SECTIONS: Final = {
    "optimizer": "no optimizer is built from it, and its numbers are not read",
    "scheduler": "no scheduler is built from it, and the rate stays as it is",
}
_STAND_INS: Final = {
    "optimizer": "the trainer takes it for one, and leaves a stand-in to DeepSpeed: none is built",
    "scheduler": "the trainer takes it for one, and its stand-in DummyScheduler has no step()",
}
"""Where the Trainer reads the file: a section is one, whatever it holds."""


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("deepspeed"):
        for name, why in _SECTIONS.items():
            section = document.get(name)
            if section is None or not section.node.fields or document.get(f"{name}.type"):
                continue
            is_dummy = run.deepspeed_reader == "trainer"
            is_part = document.get(f"{name}.params") is not None  # its type may only be left out
            yield Finding(
                f"`{name}` has no type: it does nothing",
                (section.key_label("not used"),),
                (why, *((_STAND_INS[name],) if is_dummy else ())),
                f'add "type": "{"AdamW" if name == "optimizer" else "WarmupLR"}"',
                severity=None if is_dummy and not is_part else "warning",
                consequence=_when(run, name) if is_dummy else None,
            )


def _when(run: Run, name: str) -> Consequence:
    """ZeRO below stage 3 asks for an optimizer at once; the rest is missed in the first step."""
    is_asked = name == "optimizer" and stage_of(run).value in (1, 2)
    return "init" if is_asked else "step"


RULE = Rule(
    name="section-without-type",
    severity="error",
    consequence="silent",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/config.py `get_optimizer_name`, "
            "`get_scheduler_name`: None without TYPE, and then no params; runtime/engine.py "
            "`_configure_zero_optimizer`: zero stage 2 requires an optimizer"
        ),
        (
            "transformers 4.40.2 to 5.23.0 integrations/deepspeed.py `deepspeed_optim_sched`: "
            "DummyOptim and DummyScheduler where the section is there; accelerate 0.30.1 to 1.15.0 "
            "accelerator.py `_prepare_deepspeed`: AcceleratedScheduler of it where DeepSpeed "
            "returns none; zjunlp/KnowLM#30"
        ),
    ),
    check=_check,
)
