"""Draw mangled inputs and keep those that tunec does not take as it should.

python -m tests.fuzz --cases 20000 --seed 1 -j 2 --keep FOLDER
"""

import argparse
import json
import multiprocessing
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from time import monotonic

from tests.fuzz.case import Case, case_of, faults
from tests.fuzz.minimise import minimised

_BATCH = 250
_LIFE = 48
"""Batches of a process: a new one fills its caches again, which takes as long as 250 cases."""
_TELL_EVERY = 4
Found = tuple[int, str]


def main() -> int:
    """Run the cases, print each kind of fault once, and return 1 if there is any."""
    options = _options()
    found: dict[str, list[int]] = {}
    begun = monotonic()
    batches = [
        (options.seed, first, min(_BATCH, options.start + options.cases - first))
        for first in range(options.start, options.start + options.cases, _BATCH)
    ]
    list(_told(options.seed, options.start, _BATCH))  # what is imported and kept is so for all
    with multiprocessing.get_context("fork").Pool(options.jobs, maxtasksperchild=_LIFE) as pool:
        for done, told in enumerate(pool.imap_unordered(_batch, batches), 1):
            for number, fault in told:
                kind = _kind(fault)
                if kind not in found:
                    print(f"{options.seed}:{number}: {fault}", flush=True)
                found.setdefault(kind, []).append(number)
            if done % _TELL_EVERY == 0:
                print(f"  {done * _BATCH} cases in {monotonic() - begun:.0f} s", flush=True)
    _sum_up(found, options.cases, monotonic() - begun)
    if options.keep:
        _keep(found, options.seed, options.keep)
    return 1 if found else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--start", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="folder for a minimised case of each kind")
    return parser.parse_args()


def _batch(batch: tuple[int, int, int]) -> list[Found]:
    return list(_told(*batch))


def _told(seed: int, first: int, count: int) -> Iterator[Found]:
    for number in range(first, first + count):
        yield from ((number, fault) for fault in faults(case_of(seed, number)))


def _kind(fault: str) -> str:
    """What makes two faults one: the place and the kind of error, not the values."""
    return re.sub(r"'[^']*'|\"[^\"]*/|(?<![A-Z])\d{3,}", "", fault)[:160]


def _keep(found: Mapping[str, list[int]], seed: int, folder: Path) -> None:
    """Write the first case of each kind, minimised; here, since a case changes its process."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, (first, *_) in found.items():
        small = minimised(case_of(seed, first), partial(_has, kind))
        name = re.sub(r"\W+", "-", kind.lower()).strip("-")[:80]
        text = json.dumps({"fault": kind, **small.to_json()}, indent=1)
        (folder / f"{name}.json").write_text(text + "\n", "utf-8")


def _has(kind: str, case: Case) -> bool:
    return any(_kind(each) == kind for each in faults(case))


def _sum_up(found: dict[str, list[int]], cases: int, seconds: float) -> None:
    print(f"{cases} cases in {seconds:.0f} s, {len(found)} kinds of fault")
    for kind, count in Counter({k: len(v) for k, v in found.items()}).most_common():
        print(f"  {count:6} {kind}")


if __name__ == "__main__":
    sys.exit(main())
