"""Kill commands that write at steps that are drawn, and say what was torn or left.

python -m tests.kills --kills 1000 --seed 1
"""

import argparse
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from tests.kills.commands import COMMANDS
from tests.kills.trial import Trial


def main() -> int:
    """Kill, print a line a command, and return 1 if anything was wrong."""
    options = _options()
    random = Random(options.seed)  # noqa: S311
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        trials = [Trial.of(each, Path(name, each.name)) for each in COMMANDS]
        done: Counter[str] = Counter()
        while done.total() < options.kills:
            trial = random.choice(trials)
            over = random.random() < options.over
            step = random.randrange(trial.over if over else trial.anew)
            was_killed, faults = trial.killed(step, over=over)
            done[trial.command.name] += was_killed
            wrong += bool(faults)
            where = f"{trial.command.name} at step {step}, {'over' if over else 'anew'}"
            for fault in faults:
                print(f"{where}: {fault}", flush=True)
    steps = {each.command.name: each.anew + each.over for each in trials}
    for each, count in done.items():
        print(f"{each}: {count} kills at {steps[each]} steps")
    print(f"{datetime.now(UTC):%Y-%m-%d}, seed {options.seed}: {done.total()} kills, {wrong} wrong")
    return 1 if wrong else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("kills", type=int, nargs="?", default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--over", type=float, default=0.6, help="share that writes over old files")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
