"""Files of TRL's further methods (KTO, RLOO, GKD, PPO): only read."""

from collections.abc import Mapping
from typing import Final

from tunec.compiler.target import File, Json, Target, in_no_plan
from tunec.targets.deepspeed.config import DEEPSPEED
from tunec.targets.deepspeed.reader import PACKAGE
from tunec.targets.huggingface.packages import TRANSFORMERS, TRL, TRL_RELEASES
from tunec.targets.trl.packages import companions
from tunec.targets.trl.rows import READ_ENTRIES

_MARKS: Final[Mapping[str, frozenset[str]]] = {
    "kto": frozenset({"desirable_weight", "undesirable_weight"}),
    "rloo": frozenset({"rloo_k", "normalize_advantages", "reward_clip_range", "token_level_kl"}),
    "gkd": frozenset({"lmbda", "seq_kd", "teacher_model_init_kwargs"}),
    "ppo": frozenset({"num_ppo_epochs", "cliprange_value", "vf_coef"}),
}
"""Keys that only one class has: trl 0.8.6 to 1.16.0 trainer/kto_config.py, rloo_config.py,
gkd_config.py (from 0.29 on experimental/gkd), ppo_config.py until 1.15. RLOO shares
some keys with PPO, and is tried first."""
_OF_OTHERS: Final = frozenset({"base_model", "stage", "finetuning_type", "rl"})
"""Keys of Axolotl and LLaMA-Factory, whose files have some of these keys too."""


def _file(method: str) -> File:
    marks = _MARKS[method]

    def recognise(document: Json) -> bool:
        if not isinstance(document, dict) or _OF_OTHERS & set(document):
            return False
        return "output_dir" in document and bool(marks & set(document))

    return File(
        name=f"{method}.yaml",
        format="yaml",
        entries=READ_ENTRIES,
        recognise=recognise,
        when=in_no_plan,
    )


TARGET: Final = Target(
    name="trl-methods",
    package=TRL,
    supported=TRL_RELEASES.supported,
    latest=TRL_RELEASES.latest,
    releases=TRL_RELEASES.releases,
    files=tuple(_file(method) for method in _MARKS),
    cannot={},
    beside={"transformers": TRANSFORMERS, PACKAGE: DEEPSPEED},
    companions=companions,
)
