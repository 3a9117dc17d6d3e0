"""Keys of ds_config.json that are looked at later than the others, or not at all."""

from typing import Final

from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.rule import Consequence

_PROFILER: Final = "flops_profiler."


def read_late(run: LintContext, path: str) -> Consequence | None:
    """What a value of another type comes to at such a key; None: it is as for every other key.

    deepspeed 0.14.5 to 0.19.8 runtime/engine.py `_take_model_step`: `% self.steps_per_print()`;
    runtime/zero/stage_1_and_2.py, stage3.py `step`: `self.clip_grad > 0.`; accelerate 0.30.1 to
    1.15.0 utils/dataclasses.py `DeepSpeedPlugin.__post_init__`: steps_per_print is inf, whatever
    the file says; transformers integrations/deepspeed.py `fill_match` compares gradient_clipping.
    """
    if path == "steps_per_print":
        return "silent" if run.deepspeed_reader == "trainer" else "step"
    if path == "gradient_clipping":
        return None if run.of("trainer") else "step"
    if path.startswith(_PROFILER) and path != f"{_PROFILER}enabled":
        is_on = run.effective("deepspeed", f"{_PROFILER}enabled").value is True
        is_compared = path.endswith("profile_step")
        return "step" if is_on and not is_compared else "silent"
    return None
