"""The page of lint's findings in public repositories, from the findings that were judged."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import yaml
from docs.readme import ROOT

from tunec.compiler.lints.index import Record, is_of_engines, is_rule, rule
from tunec.compiler.lints.mentions import ENDS, PYTHON
from tunec.compiler.lints.suppression import BARS, Said, missed

_ROUNDS: Final = ROOT / "benchmarks" / "false_alarms.yaml"
_JUDGED: Final = ROOT / "benchmarks" / "false_alarms.jsonl"
_DATA: Final = ROOT / "tests" / "lints" / "data"
_THREADS: Final = ("threads.yaml", "threads_later.yaml")
_OF_THREADS: Final = """\
Rates above are of what lint says; this is one of what it does not say. Misconfigurations were taken
from threads of other people's repositories, with what is wrong, at which keys, and a fixed form,
before any was shown to lint, which was asked as `tunec lint .`. Found is what it tells at one of
the keys, with the consequence, and not in the fixed form:

{batches}

The first number of each is the rate for files that nobody has looked at.
`tests/lints/data/threads.yaml` and `threads_later.yaml` keep them. What is not found, and why:"""
_BATCHES: Final = (
    *("first", "second", "third", "fourth", "fifth", "sixth"),
    *("seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth"),
)
_SEVERITIES: Final = ("warning", "error")
_VERDICTS: Final = ("true", "harmless", "false")
_INTRODUCTION: Final = """\
Each round lints public repositories that tunec was not judged on before, each by `tunec lint .`,
draws warnings and errors at random, and judges each against the source of the program that reads
the file, at the release that applies, and against how the repository starts it. *True*: what is
said happens to this file as it is used, and its owner would want to know. *Harmless*: what is said
is so, and nothing comes of it. *False*: it is not so. Only true ones count. A repository repeats
many of its faults in file after file: the *causes* are the findings of one rule in one repository
that were judged for one reason, each counted once.
`benchmarks/false_alarms.jsonl` keeps every judgement with its reason, and
`python benchmarks/false_alarms.py --repositories FOLDER` says which of them lint still reports."""
_COLUMNS: Final = (
    *("round", "repositories", "files", "severity", "found", "judged"),
    *(*_VERDICTS, "share true", "causes", "share of causes true"),
)
_OF_CLAIMS: Final = """\
What a finding says decides how often it is so at first sight, more than the file in which it is
found. A repository has mostly been run, so that what is said to end a run rests on a wrong premise
more often than not, unless an engine, a launcher or the shell reads the file whoever trains. An
error or a warning that ends a run by what a trainer reads has therefore to be shown its program
(CONTRIBUTING.md)."""
_CLAIMS: Final[Mapping[tuple[bool, bool], str]] = {
    (False, True): "runs on otherwise, by an engine, a launcher or the shell",
    (False, False): "runs on otherwise, by a trainer",
    (True, True): "ends, by an engine, a launcher or the shell",
    (True, False): "ends, by a trainer or another release of it",
}
_UNREAD: Final = "the file cannot be read"
_OF_RECORDS: Final = """\
How often a rule was right before says more of its next finding than anything that the repository
shows. In a repository, a finding is therefore as loud as the record of its rule allows: it is a
note where the rule was judged for fewer than {least} causes, or was right for less than
{share:.0%} of them, or for less than {python:.0%} in a Python program, whose calls name what reads
them; an error is of a rule that was right for {error:.0%} or more of {errors} causes or more, and
else a warning. A record of few causes counts two more with the share of all. The bars are `BARS` of
[suppression.py](../compiler/lints/suppression.py), chosen by the rounds {first} to {set}, and
proved by those after. Below is what they leave of the findings of these rounds, by the records that
the rules had from the rounds before. What is lowered is shown as a note with its reason, and
`tunec lint DIR` says how many there are; where the files are named, or a release or a device is
given, nothing is lowered. Such notes are drawn and judged too, so that a rule can win its level
back; `compiler/lints/records.json` follows from all judgements."""
_BY_RECORDS: Final = ("twenty-eighth", "thirty-second", "forty-first")
"""The rounds by which the bars of records were set, and the last by which they were proved."""
Row = Mapping[str, Any]


def false_alarms_page() -> str:
    """The page: rates by round, and the rules that were wrong, the most frequent first."""
    rounds: Mapping[str, Row] = yaml.safe_load(_ROUNDS.read_text("utf-8"))
    rows = [json.loads(line) for line in _JUDGED.read_text("utf-8").splitlines()]
    return "\n".join(_lines(rounds, rows)) + "\n"


def records() -> str:
    """How each rule and code was judged: the causes that were so, and all, each counted once."""
    held = _records([json.loads(line) for line in _JUDGED.read_text("utf-8").splitlines()])
    lines = (f'  "{name}": [{held[name].true}, {held[name].judged}]' for name in sorted(held))
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _records(rows: Sequence[Row]) -> dict[str, Record]:
    causes = {(e["rule"], e["repository"], e["reason"]): e["verdict"] == "true" for e in rows}
    judged = Counter(name for name, _, _ in causes)
    true = Counter(name for (name, _, _), is_so in causes.items() if is_so)
    return {name: Record(true[name], judged[name]) for name in judged}


def _of_records(rows: Sequence[Row], rounds: Sequence[str]) -> Iterator[str]:
    """How often what the bars leave of findings was true, by later rounds."""
    first, by, last = _BY_RECORDS
    any_file, in_python, of_errors = BARS
    shares = {"share": any_file.share, "python": in_python.share, "error": of_errors.share}
    counts = {"least": any_file.least, "errors": of_errors.least}
    told_by = _OF_RECORDS.format(first=first, set=by, **counts, **shares)
    yield from ("", "## What a rule was worth", "", told_by, "")
    lowered = [row["verdict"] == "true" for row in rows if row["severity"] == "note"]
    yield f"Of {len(lowered)} findings that were drawn as such notes {sum(lowered)} were so."
    yield from ("", "| rounds | left as | findings | true | share true |")
    yield "| --- | --- | ---: | ---: | ---: |"
    middle = rounds.index(by) + 1
    for told in (rounds[rounds.index(first) : middle], rounds[middle : rounds.index(last) + 1]):
        verdicts: dict[str, list[bool]] = {}
        for name in told:
            held = _records([row for row in rows if row["round"] in rounds[: rounds.index(name)]])
            for row in rows:
                if row["round"] == name and row["severity"] != "note":
                    verdicts.setdefault(_left(row, held), []).append(row["verdict"] == "true")
        for level in ("error", "warning", "note"):
            so = verdicts[level]
            numbers = f"{len(so)} | {sum(so)} | {sum(so) / len(so):.0%}"
            yield f"| {told[0]} to {told[-1]} | {level} | {numbers} |"


def _left(row: Row, held: Mapping[str, Record]) -> str:
    """The level that the bars leave a finding by the records of that time."""
    said = Said(row["severity"] == "error", row["file"].endswith(PYTHON))
    bar = missed(held.get(row["rule"], Record()), said)
    return row["severity"] if bar is None else bar.leaves


def _lines(rounds: Mapping[str, Row], rows: Sequence[Row]) -> Iterator[str]:
    yield "<!-- made by docs/false_alarms_page.py; `just generate` renews it -->"
    yield from ("", "# What lint says of public repositories", "", _INTRODUCTION, "")
    yield f"| {' | '.join(_COLUMNS)} |"
    yield "| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for name, each in rounds.items():
        for severity in _SEVERITIES:
            yield _rate(name, each, severity, rows)
    yield from _of_claims(rows)
    yield from _of_records(rows, list(rounds))
    for name, each in rounds.items():
        yield from ("", f"## Round `{name}`", "")
        yield f"{each['date']}, tunec {each['tunec']}. {_kept(each, rows, name)}"
        yield from ("", "Rules with findings that are not true:")
        yield from ("", "| rule | severity | judged | harmless | false |")
        yield "| --- | --- | ---: | ---: | ---: |"
        yield from _wrong([row for row in rows if row["round"] == name])
    yield from _of_threads()


def _of_claims(rows: Sequence[Row]) -> Iterator[str]:
    """How often each kind of claim is true at first sight, over all rounds."""
    yield from ("", "## What is said, and how often it is so", "", _OF_CLAIMS, "")
    yield "| the run | severity | judged | true | harmless | false | share true |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: |"
    counted = Counter((_claim(row["rule"]), row["severity"], row["verdict"]) for row in rows)
    for claim in (*_CLAIMS.values(), _UNREAD):
        for severity in _SEVERITIES:
            numbers = [counted[claim, severity, verdict] for verdict in _VERDICTS]
            share = f"{numbers[0] / sum(numbers):.0%}"
            yield f"| {' | '.join((claim, severity, *map(str, (sum(numbers), *numbers)), share))} |"


def _claim(name: str) -> str:
    if not is_rule(name):
        return _UNREAD
    return _CLAIMS[rule(name).consequence in ENDS, is_of_engines(name)]


def _of_threads() -> Iterator[str]:
    cases: Sequence[Row] = [
        case for name in _THREADS for case in yaml.safe_load((_DATA / name).read_text("utf-8"))
    ]
    batches = ([case for case in cases if case.get("batch", "first") == name] for name in _BATCHES)
    yield from ("", "## What it finds of new threads", "")
    yield _OF_THREADS.format(batches="\n".join(map(_found, batches)))
    yield ""
    for case in cases:
        if "open" in case:
            yield f"- {case['title']} ({case['source']}): {case['open']}"


def _found(cases: Sequence[Row]) -> str:
    """How many of some cases were found at first, and how many are found today."""
    before = sum(case["before"] == "found" for case in cases)
    now = sum("rule" in case for case in cases)
    return f"- {before} of {len(cases)} at once, {now} since the rules were fixed by kind of fault"


def _rate(name: str, each: Row, severity: str, rows: Sequence[Row]) -> str:
    mine = [row for row in rows if (row["round"], row["severity"]) == (name, severity)]
    verdicts = Counter(row["verdict"] for row in mine)
    numbers = " | ".join(str(verdicts[verdict]) for verdict in _VERDICTS)
    share = f"{verdicts['true'] / len(mine):.0%}"
    sizes = f"{len(each['repositories'])} | {each['files']}"
    numbers = f"{each['found'][severity]} | {len(mine)} | {numbers} | {share} | {_causes(mine)}"
    return f"| {name} | {sizes} | {severity} | {numbers} |"


def _causes(rows: Sequence[Row]) -> str:
    """The number of different causes of findings, and the share of them that is true."""
    of_causes = {(e["repository"], e["rule"], e["reason"]): e["verdict"] for e in rows}
    true = sum(verdict == "true" for verdict in of_causes.values())
    return f"{len(of_causes)} | {true / len(of_causes):.0%}"


def _kept(each: Row, rows: Sequence[Row], name: str) -> str:
    """The findings of a round that lint still reports since the rules were fixed."""
    told = list[str]()
    for severity in _SEVERITIES:
        mine = [row for row in rows if (row["round"], row["severity"]) == (name, severity)]
        true = sum(row["verdict"] == "true" for row in mine)
        left = each["kept"][severity]
        others = f"{left['others']} of {len(mine) - true} others"
        told.append(f"{left[True]} of {true} true {severity}s and {others}")
    return f"When its rules had been fixed, lint still reported {', and '.join(told)}."


def _wrong(rows: Sequence[Row]) -> Iterator[str]:
    every = Counter((row["rule"], row["severity"]) for row in rows)
    by_verdict = Counter((row["rule"], row["severity"], row["verdict"]) for row in rows)
    for name, severity in sorted(every, key=lambda each: (-by_verdict[*each, "false"], each)):
        harmless, false = (by_verdict[name, severity, each] for each in _VERDICTS[1:])
        if harmless + false:
            yield f"| `{name}` | {severity} | {every[name, severity]} | {harmless} | {false} |"
