"""An optimizer or a scheduler section in ds_config.json that does not name one."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_SECTIONS: Final = {
    "optimizer": "no optimizer is built from it, and its numbers are not read",
    "scheduler": "no scheduler is built from it, and the rate stays as it is",
}


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("deepspeed"):
        for name, why in _SECTIONS.items():
            section = document.get(name)
            if section is None or not section.node.fields or document.get(f"{name}.type"):
                continue
            yield Finding(
                f"`{name}` has no type: it does nothing",
                (section.key_label("not used"),),
                (why,),
                f'add "type": "{"AdamW" if name == "optimizer" else "WarmupLR"}"',
            )


RULE = Rule(
    name="section-without-type",
    severity="warning",
    consequence="silent",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 runtime/config.py `get_optimizer_name`, "
            "`get_scheduler_name`: None without TYPE, and then no params"
        ),
    ),
    check=_check,
)
