"""How many of lint's warnings and errors are true of public repositories.

    python benchmarks/false_alarms.py --repositories FOLDER [--round NAME]

lints the repositories of `false_alarms.yaml`, which lie checked out as FOLDER/OWNER/NAME at the
commits that stand there, each as its own user would (`tunec lint .`). Of what is found, each round
draws warnings and errors by its seed. `false_alarms.jsonl` keeps how they were judged;
`just generate` makes `docs/false-alarms.md` of it.

Printed are the repositories that are missing, what of the judged findings lint still reports, and
with `--draw` a row for each finding of a new draw, of which the verdict is yet to be written.
"""

import argparse
import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

import tunec
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.lints.suppression import is_unproven

ROUNDS: Final = Path(__file__).with_suffix(".yaml")
JUDGED: Final = Path(__file__).with_suffix(".jsonl")
SEVERITIES: Final = ("warning", "error")
LOWERED: Final = "note"
"""What a finding is drawn as that the record of its rule alone leaves a note: it is judged, too, as
no rule could win back what it was worth otherwise."""
SLOW_SECONDS: Final = 5.0
Row = Mapping[str, Any]


def rounds() -> dict[str, Row]:
    """The repositories of each round and the numbers to draw, by the round's name."""
    held: dict[str, Row] = yaml.safe_load(ROUNDS.read_text("utf-8"))
    return held


def judged() -> list[Row]:
    """Every finding that was judged."""
    return [json.loads(line) for line in JUDGED.read_text("utf-8").splitlines()]


def missing(repositories: Mapping[str, str], folder: Path) -> list[str]:
    """Repositories that are not below the folder, as `OWNER/NAME@COMMIT`."""
    absent = (name for name in repositories if not (folder / name).is_dir())
    return [f"{name}@{repositories[name]}" for name in absent]


def row_of(repository: str, commit: str, found: Diagnostic) -> Row:
    """The row of a finding at its place, without a verdict."""
    label, span = found.primary, found.span
    return {
        "repository": repository,
        "commit": commit,
        "file": Path(found.file).as_posix(),
        "line": 0 if span is None else span.line,
        "key": "" if label is None else label.path,
        "rule": found.id,
        "severity": found.severity,
        "message": found.message,
    }


def place_of(row: Row) -> tuple[Any, ...]:
    """The fields that identify a judged finding: its file, line, key and rule, not its words."""
    return tuple(row[each] for each in ("repository", "file", "line", "key", "rule"))


def lint(repository: str, commit: str, folder: Path) -> list[Row]:
    """The findings in one repository; slow lints and findings without a place are printed."""
    start = time.process_time()
    with contextlib.chdir(folder / repository):
        linted = tunec.lint(".")
    seconds = time.process_time() - start
    if seconds > SLOW_SECONDS:
        print(f"slow: {repository} takes {seconds:.1f} s")
    for each in linted.diagnostics:
        if each.is_bug or (each.span is None and each.severity in SEVERITIES):
            print(
                f"{'fault of tunec' if each.is_bug else 'no place'}: {repository}: {each.message}"
            )
    print(f"{repository}: {len(linted.sources)} files, {len(linted.runs)} runs")
    told = (each for each in linted.diagnostics if each.severity != LOWERED or is_unproven(each))
    return [row_of(repository, commit, each) for each in told]


def draw(
    found: Iterable[Row], seed: int, wanted: Mapping[str, int], most: int | None = None
) -> Iterator[Row]:
    """As many findings of each severity as a round requests, or all of them if there are fewer.

    `most`: the most findings of each severity from one repository.
    """
    ordered = sorted(found, key=lambda row: (*map(str, place_of(row)), row["message"]))
    for severity in (*SEVERITIES, LOWERED):
        those = [row for row in ordered if row["severity"] == severity]
        number, chance = wanted.get(severity, 0), random.Random(seed)  # noqa: S311
        if most is None:
            drawn = chance.sample(those, min(len(those), number))
        else:
            chance.shuffle(those)
            drawn = list(_few_of_each(those, most))[:number]
        yield from sorted(drawn, key=place_of)


def _few_of_each(rows: Iterable[Row], most: int) -> Iterator[Row]:
    taken = Counter[str]()
    for row in rows:
        taken[row["repository"]] += 1
        if taken[row["repository"]] <= most:
            yield row


def tell_what_remains(name: str, found: Sequence[Row]) -> None:
    """Print how many of a round's findings are still reported, by severity and verdict.

    One that has become an error since counts, too.
    """
    reported: dict[tuple[Any, ...], set[str]] = {}
    for row in found:
        reported.setdefault(place_of(row), set()).add(row["severity"])
    then, now = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for row in judged():
        if row["round"] == name:
            kind = row["severity"], row["verdict"]
            then[kind] += 1
            now[kind] += not reported.get(place_of(row), set()).isdisjoint(
                {row["severity"], "error"}
            )
    for (severity, verdict), number in sorted(then.items()):
        print(
            f"{name}: {severity}s judged {verdict}: {number}, reported now {now[severity, verdict]}"
        )


def run(name: str, round_: Row, folder: Path, *, is_drawn: bool) -> None:
    """Lint the repositories of a round, and print the rest of its findings or a new draw."""
    repositories = round_["repositories"]
    for absent in missing(repositories, folder):
        print(f"missing: {absent}")
    there = {each: commit for each, commit in repositories.items() if (folder / each).is_dir()}
    found = [row for each, commit in there.items() for row in lint(each, commit, folder)]
    print(f"{name}: {dict(Counter(row['severity'] for row in found))}")
    if is_drawn:
        for row in draw(found, round_["seed"], round_["drawn"], round_.get("most")):
            print(json.dumps({"round": name, **row}, ensure_ascii=False))
    else:
        tell_what_remains(name, found)


def main() -> None:
    """Run one round, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repositories", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--round", choices=rounds())
    parser.add_argument("--draw", action="store_true", help="print a new draw, to be judged")
    options = parser.parse_args()
    for name, each in rounds().items():
        if options.round in (None, name):
            run(name, each, options.repositories.resolve(), is_drawn=options.draw)


if __name__ == "__main__":
    main()
