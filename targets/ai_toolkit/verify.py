"""The files of ai-toolkit that are run to find out how it reads a config."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.targets.ai_toolkit.packages import COMMITS, RELEASES
from tunec.targets.scripts.sources import obtain_all

SCRIPT: Final = "tunec.targets.ai_toolkit.consumer"
REQUIREMENTS: Final = ("toml==0.10.2",)
"""A pin that the classes do not need; an environment must have one."""
_FILES: Final = {
    "toolkit/config_modules.py": "64c9ddd959e0895147006b9c17f64e44b716abe6",
    "toolkit/optimizer.py": "f1c86d8cd5f5568be5ec0ee33b54d12ccf18ca20",
}
"""Files of the newest release, with git's hash of their content."""


def question(process: Mapping[str, Any]) -> dict[str, Any]:
    """The question about a process. Raises EnvironmentUnavailable."""
    sources = obtain_all("ostris/ai-toolkit", COMMITS[RELEASES[-1]], _FILES)
    return {"verb": "settle", "sources": sources, "process": process}
