"""How ms-swift chooses the loader and the template of a model: by its repository's name.

schemas/json/ms-swift/models.json holds the names of each release, from the program itself
(`MODEL_MAPPING`). An unknown name needs `model_type` and `template` beside it.
"""

import re
from collections.abc import Mapping
from typing import Final

from packaging.version import Version

from tunec.compiler.ir.plan import Draft, Plan
from tunec.compiler.lints.kinds import schema
from tunec.schemas.caches import cached
from tunec.targets.huggingface.training import optimizer_packages
from tunec.targets.ms_swift.packages import PACKAGE, needed_packages

_NAMES: Final = f"{PACKAGE}/models.json"
_UNNAMED: Final[Mapping[str, tuple[str, str]]] = {
    r"^llama-3\.[13]-\d+b(-instruct)?$": ("llama", "llama3_2"),
    r"^llama-3\.2-\d+b(-instruct)?$": ("llama", "llama3_2"),
    r"^llama-3-\d+b(-instruct)?$": ("llama", "llama3"),
    r"^codellama-\d+b(-instruct)?-hf$": ("llama", "llama"),
    r"^mistral-7b(-instruct)?-v0\.\d$": ("mistral", "llama"),
}
"""Names on the Hugging Face hub that ms-swift lacks, though it has the models' former names, or
their siblings: ms-swift 4.6.0 model/models/llama.py, mistral.py `register_model`."""


def name_of(path: str) -> str:
    """The last part of a path or a repository's name, by which ms-swift looks up a model."""
    return path.rstrip("/").rpartition("/")[2].lower()


@cached()
def known_names(release: str) -> Mapping[str, tuple[str, str]]:
    """Model type and template by name, from the newest release up to the requested one."""
    asked, table = Version(release), schema(_NAMES)
    found = {}
    for name, by_release in table.items():
        held = [since for since in by_release if Version(since) <= asked]
        said = by_release[max(held, key=Version)] if held else ""
        if said:
            kind, _, template = said.partition(" ")
            found[name] = (kind, template)
    return found


def is_named(plan: Plan, release: str) -> bool:
    """Whether a release recognises the model by its name."""
    return name_of(plan.model.path) in known_names(release)


def type_and_template(plan: Plan) -> tuple[str, str] | None:
    """Model type and template of a model whose name ms-swift does not know."""
    return _unnamed(name_of(plan.model.path))


_OF_REWARDS: Final = ("msgspec",)
"""What the trainer of rewards imports and no wheel of ms-swift requires; vLLM brings it, if it is
used: ms-swift 4.0.4 to 4.6.0 rlhf_trainers/utils.py."""


def imports(draft: Draft, version: Version) -> tuple[str, ...]:
    """The packages that loader, trainer and optimizer import, and ms-swift does not install."""
    name = name_of(draft.model.path)
    found = known_names(str(version)).get(name) or _unnamed(name)
    of_model = needed_packages(found[0]) if found else ()
    of_rewards = _OF_REWARDS if draft.objective.kind == "grpo" else ()
    return (*of_model, *of_rewards, *optimizer_packages(draft, version))


def _unnamed(name: str) -> tuple[str, str] | None:
    return next((each for pattern, each in _UNNAMED.items() if re.search(pattern, name)), None)
