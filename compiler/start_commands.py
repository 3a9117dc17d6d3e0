"""How a target's files are started: commands, and the names of the files that start a run."""

from typing import Final

from msgspec import Struct

RUN: Final = "run.sh"
"""The entry script of a bundle, at its root."""

PACKAGES: Final = "requirements.txt"
"""The requirements file beside the entry script: what pip installs for the run."""

UNNAMED: Final = "train.py"
"""The value of `launch.script` if the spec names no script."""

STARTER: Final = "start.py"
"""The file in a trainer's folder that starts a trainer which looks for its files in the current
folder."""


class Start(Struct, frozen=True):
    """One way to start a target's files from the root of their bundle."""

    words: tuple[str, ...]
    """The command, such as `bash`, `sbatch` or `simpletuner train`."""
    file: str = ""
    """The target's file that the command ends with; this way applies only if that file is
    written."""
    submits: bool = False
    """Whether the command submits the run to a cluster and does not wait for it to end."""
    elsewhere: bool = False
    """Whether the run does not inherit the environment in which the command is given."""
    at_home: bool = False
    """Whether the command must run in the target's own folder, where the program looks for its
    files."""
    needs_script: bool = False
    """Whether it starts the script that the plan names, and none of the target's own."""
    repository: str = ""
    """The repository that holds the script, if no package contains it; the spec gives its local
    path."""
