"""Begins a lint rule: shows which rules stand near it, then writes its skeleton and its page.

`just new-rule NAME` only shows these. With `--in` and `--when` the rule joins the module of its
nearest neighbour there, and its page is written; each line that is still to be written says so, to
its author and to the tests.
"""

import argparse
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from math import log
from pathlib import Path
from typing import Final, NamedTuple, get_args

from docs.readme import ROOT

from tunec.compiler.diagnostics.diagnostic import Severity
from tunec.compiler.lints.index import FOLDERS, is_rule, rule, rule_names, rule_page, rule_title
from tunec.compiler.lints.rows import Row, reads_of
from tunec.compiler.lints.rule import CONSEQUENCES

TO_WRITE: Final = "TO WRITE:"
"""The prefix of each text that an author still has to write."""
_MOST: Final = 8
_LEAST_SCORE: Final = 8.0
_KEY_SCORE: Final = 12.0
"""The score of two rules that read one key, whatever their names."""
_SILENT: Final = frozenset(
    {"and", "beside", "for", "in", "is", "no", "not", "of", "on", "the", "to"}
)
_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
_EXAMPLE: Final = re.compile(
    r"^`([^`\n]+)`\n\n```(\w+)\n.*?^```console\n(.*?)^```", re.MULTILINE | re.DOTALL
)

_MOST_LINES: Final = 360
"""The longest module that takes another rule, in lines: `tests/house/test_words.py`."""
_SUBJECT: Final = '"""TO WRITE: the subject."""\n\n'
_IMPORT: Final = "from tunec.compiler.lints.rows import Row, rows\n"
_ROWS: Final = """
{variable} = rows(
    "{name}",
    "{severity}",
    "{consequence}",
    consumers=({consumers},),
    rows=(
        Row(
            "{when}",
            "TO WRITE: what is wrong, as in: {{0.key}} is {{0.value}}, and ...",
            why="TO WRITE: what the program really does",
            help="TO WRITE: the smallest change that fixes it",
        ),
    ),
)
"""
_PAGE: Final = """# {name}: TO WRITE: what is wrong, in a few words

TO WRITE: what happens to the run, and when its owner finds out.

## Bad

`{file}`

```{language}
TO WRITE: the least that shows it
```

```console
{command}```

## Good

`{file}`

```{language}
TO WRITE: the same, mended
```

```console
{command}```

## Sources

- TO WRITE: repository, version, file and `symbol`, where the program does so
"""


class Near(NamedTuple):
    """A rule that may already cover the new one, and what both share."""

    name: str
    score: float
    keys: tuple[str, ...]

    def __str__(self) -> str:
        shared = f"\n    reads {', '.join(self.keys)}, too" if self.keys else ""
        return f"  {self.name}: {rule_title(self.name)}{shared}\n"


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Print the neighbours of a rule, and write its files below `root` if a folder is given."""
    asked = _parser().parse_args(arguments)
    if not _NAME.fullmatch(asked.name):
        return _refuse(f"`{asked.name}`: name the bad thing in words with hyphens between")
    if is_rule(asked.name):
        return _refuse(f"there is a rule {asked.name}: {rule_title(asked.name)}")
    sys.stdout.write(_neighbours(near(asked.name, _reads(asked.when)), asked.name))
    if not (asked.folder and asked.when):
        sys.stdout.write("\nnone of them says it? then name --in and --when as well (--help)\n")
        return 0
    folder = _folder(asked.folder, root)
    if folder is None:
        return _refuse(f"`--in {asked.folder}`: there are {', '.join(_subjects(root))}")
    for file, text in _files(asked, folder).items():
        done = "joined" if file.exists() else "written"
        file.write_text(text, "utf-8")
        sys.stdout.write(f"{done}: {file.relative_to(root).as_posix()}\n")
    sys.stdout.write(
        "next: fill in what is TO WRITE, then `just format generate` and "
        f"`just test tests/lints -k {asked.name}`\n"
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="just new-rule", description=__doc__)
    parser.add_argument("name", help="the bad thing: batch-not-divisible")
    parser.add_argument(
        "--in", dest="folder", help="a subject of compiler/lints/checks, or a target"
    )
    parser.add_argument("--when", help='what is written: "trainer:bf16=true & no fp16"')
    parser.add_argument("--severity", choices=get_args(Severity), default="warning")
    parser.add_argument("--consequence", choices=list(CONSEQUENCES), default="silent")
    parser.add_argument("--consumer", action="append", help="whose behaviour it is: trl>=0.19")
    return parser


def _refuse(why: str) -> int:
    sys.stderr.write(f"{why}\n")
    return 1


def _reads(when: str | None) -> tuple[str, ...]:
    """The keys that a condition names first, each with its kind of document."""
    return reads_of((Row(when, ""),)) if when else ()


# ── neighbours ───────────────────────────────────────────────────────────────────────────────────


def near(name: str, reads: Sequence[str] = ()) -> tuple[Near, ...]:
    """The rules nearest to a name and to keys, limited to those worth reading."""
    return tuple(each for each in _ranked(name, reads)[:_MOST] if each.score >= _LEAST_SCORE)


def _ranked(name: str, reads: Sequence[str]) -> list[Near]:
    """Every rule, the nearest first: by name, title, page and the keys that it reads."""
    words = set(_words(" ".join((name, *(key.rpartition(":")[2] for key in reads)))))
    pages = {each: set(_words(rule_page(each))) for each in rule_names()}
    heads = {each: set(_words(f"{each} {rule_title(each)}")) for each in pages}
    in_page, in_head = _rarity(words, pages.values()), _rarity(words, heads.values())
    found = []
    for each, page in pages.items():
        keys = tuple(key for key in reads if key in rule(each).reads)
        shared = sum(in_head[word] for word in words & heads[each])
        score = 3 * shared + sum(in_page[word] for word in words & page) + _KEY_SCORE * len(keys)
        found.append(Near(each, score, keys))
    return sorted(found, key=lambda each: (-each.score, each.name))


def _rarity(words: Iterable[str], texts: Collection[set[str]]) -> dict[str, float]:
    """The weight of each word: the higher, the fewer texts have the word."""
    return {word: log(len(texts) / (1 + sum(word in text for text in texts))) for word in words}


def _words(text: str) -> list[str]:
    """The words of a text, without the `s` of a plural."""
    found = re.findall(r"[a-z0-9]+", text.lower())
    return [word.rstrip("s") or word for word in found if word not in _SILENT]


def _neighbours(found: Sequence[Near], name: str) -> str:
    if not found:
        return f"no rule stands near {name}\n"
    return f"near {name} (`tunec explain RULE` prints a page):\n{''.join(map(str, found))}"


# ── files ────────────────────────────────────────────────────────────────────────────────────────


def _folders(root: Path) -> dict[str, Path]:
    found = (folder for pattern in FOLDERS for folder in sorted(root.glob(pattern)))
    return {_subject(folder): folder for folder in found if (folder / "__init__.py").is_file()}


def _subject(folder: Path) -> str:
    return folder.parent.name if folder.name == "rules" else folder.name


def _subjects(root: Path) -> list[str]:
    return sorted(_folders(root))


def _folder(subject: str, root: Path) -> Path | None:
    return _folders(root).get(subject.replace("-", "_"))


def _files(asked: argparse.Namespace, folder: Path) -> dict[Path, str]:
    variable = asked.name.replace("-", "_")
    file, language, command = _example(_reads(asked.when))
    consumers = asked.consumer or [f"{TO_WRITE} the package"]
    filled = {
        "name": asked.name,
        "variable": variable,
        "severity": asked.severity,
        "consequence": asked.consequence,
        "consumers": ", ".join(f'"{each}"' for each in consumers),
        "when": asked.when,
        "file": file,
        "language": language,
        "command": command,
    }
    module = _neighbour(asked, folder) or folder / f"{variable}.py"
    before = module.read_text("utf-8") if module.exists() else _SUBJECT
    return {
        module: _with_import(before) + "\n" + _ROWS.format(**filled),
        folder / f"{asked.name}.md": _PAGE.format(**filled),
    }


def _neighbour(asked: argparse.Namespace, folder: Path) -> Path | None:
    """The module of the nearest rule in a folder, with room for another; None: there is none."""
    texts = {file: file.read_text("utf-8") for file in sorted(folder.glob("*.py"))}
    roomy = {file: text for file, text in texts.items() if text.count("\n") <= _MOST_LINES}
    ranked = (each for each in _ranked(asked.name, _reads(asked.when)) if each.score > 0)
    homes = (file for each in ranked for file in roomy if _holds(roomy[file], each.name))
    return next(homes, None)


def _holds(text: str, name: str) -> bool:
    return f'"{name}",' in text or f"def {name.replace('-', '_')}(" in text


def _with_import(text: str) -> str:
    """A module that imports what makes rules of rows; `just format` puts the line in its place."""
    if re.search(
        r"^from tunec\.compiler\.lints\.rows import .*\bRow\b.*\brows\b", text, re.MULTILINE
    ):
        return text
    first = re.search(r"^(from|import) ", text, re.MULTILINE)
    at = first.start() if first else len(text)
    return f"{text[:at]}{_IMPORT}{text[at:]}"


def _example(reads: Sequence[str]) -> tuple[str, str, str]:
    """File, language and command from the first page whose rule reads such a document."""
    kinds = {key.partition(":")[0] for key in reads}
    for name in rule_names():
        if kinds == {key.partition(":")[0] for key in rule(name).reads}:
            shown = _EXAMPLE.search(rule_page(name))
            if shown and shown[3] == f"tunec lint {shown[1]}\n":
                return shown[1], shown[2], shown[3]
    return "training_args.yaml", "yaml", "tunec lint training_args.yaml\n"


def unwritten(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """The texts still to be written in rules and their pages: file with line, and the text."""
    for folder in _folders(root).values():
        for file in sorted((*folder.glob("*.py"), *folder.glob("*.md"))):
            for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
                _, mark, what = line.partition(TO_WRITE)
                if mark:
                    place = f"{file.relative_to(root).as_posix()}:{number}"
                    yield place, what.strip().rstrip('",)')


if __name__ == "__main__":
    sys.exit(main())
