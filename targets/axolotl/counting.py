"""How Axolotl counts optimizer steps; it passes their number to the Trainer."""

import math
from collections.abc import Mapping
from typing import Any

from tunec.compiler.analyses.counting import Counting, Epoch, of_whole_and_partial
from tunec.compiler.target import Dialect
from tunec.targets.axolotl.packages import PACKAGE


def _steps(epoch: Epoch, epochs: float) -> int:
    """The number of steps. All epochs are counted together, and the last step may be partial.

    axolotl 0.13.2 to 0.19.0 utils/trainer.py `calculate_total_num_steps`. If the model answers
    prompts, the Trainer counts: common/datasets.py `load_preference_datasets`.
    """
    if epoch.answers:
        return of_whole_and_partial(epoch, epochs)
    return math.ceil(epoch.rows * epochs / (epoch.micro * epoch.accumulation * epoch.processes))


def counting(dialect: Dialect, _: Mapping[str, Any]) -> Counting:
    """Axolotl's counting. Its packing fills bins in a random order, so the rows are an estimate.

    axolotl 0.13.2 to 0.19.0 utils/samplers/multipack.py `MultipackBatchSampler`.
    """
    return Counting(f"axolotl {dialect[PACKAGE]}", _steps, "multipack")
