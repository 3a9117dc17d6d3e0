"""The trainer accumulates, and the file of DeepSpeed does not say so."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix
from tunec.compiler.lints.batch.counts import is_whole
from tunec.compiler.lints.keys.known import is_whole as is_whole_file
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_KEY: Final = "gradient_accumulation_steps"


def _check(run: Run) -> Iterator[Finding]:
    asked = run.said("trainer", _KEY)
    if asked is None or not is_whole(asked.value) or asked.value < 2:
        return
    for document in run.of("deepspeed"):
        if not is_whole_file(document) or document.get(_KEY) or _KEY in document.unknown:
            continue
        added = None if document.is_view else document.added(_KEY, "auto")
        yield Finding(
            f"{_KEY} {asked.value} does not reach DeepSpeed, which steps at every micro batch",
            (asked.label("not used"), document.lacking(_KEY)),
            (
                (
                    "accelerate puts 1 where the file leaves it out; before 1.8 the engine goes by "
                    "that alone, and the batch is so many times smaller"
                ),
            ),
            f'write "{_KEY}": "auto" in the DeepSpeed file',
            Fix((added,), "safe") if added else None,
        )


RULE = Rule(
    name="accumulation-left-out",
    severity="error",
    consequence="silent",
    consumers=("accelerate<1.8",),
    sources=(
        (
            "accelerate 0.30.1 to 1.15.0 utils/dataclasses.py `DeepSpeedPlugin.__post_init__`: 1 "
            "where it is not in the config"
        ),
        (
            "accelerate 0.30.1 to 1.7.0 utils/deepspeed.py `DeepSpeedEngineWrapper.backward`: "
            "engine.step() each time; 1.8.0 to 1.15.0: set_gradient_accumulation_boundary"
        ),
        "baichuan-inc/Baichuan-13B#148, huggingface/accelerate#3552",
    ),
    check=_check,
)
