"""How what a target writes is started, and the words that start a trainer."""

from typing import Final

from msgspec import Struct

RUN: Final = "run.sh"
"""The entry of a bundle, at its root."""

PACKAGES: Final = "requirements.txt"
"""Beside it: what pip installs for the run."""

UNNAMED: Final = "train.py"
"""What a plan has for `launch.script` where nobody names a script."""

STARTER: Final = "start.py"
"""In a trainer's folder: it starts a trainer that looks for its files where it is started."""


class Start(Struct, frozen=True):
    """One way in which a target's files are started, from the root of their bundle."""

    words: tuple[str, ...]
    """The command: `bash`, `sbatch`, `simpletuner train`."""
    file: str = ""
    """The target's file that ends the command; it is started so where this file is written."""
    submits: bool = False
    """Whether the command hands the run to a cluster, and does not wait for its end."""
    elsewhere: bool = False
    """Whether the run sees nothing of the environment in which the command is given."""
    at_home: bool = False
    """Whether the program looks for its files in the working directory, which is then the target's
    own folder."""
    needs_script: bool = False
    """Whether it starts the script that the plan names, and none of the target's own."""
    repository: str = ""
    """Where the script is that it starts, if that is in no package: the spec says where it lies."""
