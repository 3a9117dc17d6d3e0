"""torchrun in a process that has loaded the libraries already: it forks its ranks.

compiler/consumers/fork_server.py runs it as `torchrun.py FOLDER FLAGS...`, in FOLDER/work.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from tunec.compiler.rehearse.live import rank
from tunec.compiler.rehearse.live.watchdog import tie


def main(folder: str, *flags: str) -> int:
    """Start the ranks with torchrun's `flags`; without flags, be the only rank."""
    tie(Path(folder), "launcher")
    if not flags:
        return rank.main(Path(folder))
    _launch(folder, flags)
    return 0


def _launch(folder: str, flags: Sequence[str]) -> None:
    """Do what torch 2.13 distributed/run.py `run` does, with a function as the program."""
    from torch.distributed.launcher.api import elastic_launch
    from torch.distributed.run import config_from_args, parse_args

    asked = parse_args([*flags, "--start-method=fork", "-m", rank.__name__])
    config, _, _ = config_from_args(asked)
    elastic_launch(config, _rank)(folder)


def _rank(folder: str) -> None:
    sys.exit(rank.main(Path(folder)))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
