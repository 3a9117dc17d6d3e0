"""An optimizer or a scheduler in DeepSpeed's file, for a script that makes its own."""

import re
from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.launch.scripts import launches
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_OWN_LOOP: Final = re.compile(
    r"_no_trainer\.py\Z|(\A|/)train_(?!cogvideox)(dreambooth|text_to_image|controlnet|control|"
    r"instruct_pix2pix|t2i_adapter|lcm_distill|custom_diffusion|unconditional)\w*\.py\Z"
)
"""transformers 4.40.2 to 5.23.0 examples/pytorch and huggingface/diffusers 0.27.2 to 0.40.0
examples: scripts with a loop of their own, which give `accelerator.prepare` an optimizer of torch
and a schedule. Those of CogVideoX look into DeepSpeed's file first (`get_optimizer`)."""


def _check(run: Run) -> Iterator[Finding]:
    for document in launches(run, "accelerate"):
        script = document.get("script")
        if script is None or not _OWN_LOOP.search(_name(script)):
            continue
        for key in ("optimizer", "scheduler"):
            section = run.said("deepspeed", key)
            if section is not None and section.node.fields:
                yield _finding(section, key, script)


def _name(script: Place) -> str:
    words = script.value if isinstance(script.value, list) else [script.value]
    return str(words[0]) if words else ""


def _finding(section: Place, key: str, script: Place) -> Finding:
    return Finding(
        f"DeepSpeed's file has a section {key}, and {_name(script)} makes one by itself",
        (section.key_label("refused"), script.label(f"makes its own {key}", primary=False)),
        (f"You cannot specify {_WORDS[key]} in the config file and in the code at the same time",),
        f"remove the section {key}",
    )


_WORDS: Final = {"optimizer": "an optimizer", "scheduler": "a scheduler"}

RULE = Rule(
    name="optimizer-made-by-script",
    severity="error",
    consequence="init",
    consumers=("accelerate",),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 accelerator.py `_prepare_deepspeed`: ValueError unless "
            "the code passes DummyOptim and DummyScheduler"
        ),
        "huggingface/trl#636",
    ),
    check=_check,
)
