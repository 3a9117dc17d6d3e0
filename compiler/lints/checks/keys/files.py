"""Missing files, files of other programs, unused allowances, and the form of flags."""

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePath, PurePosixPath
from typing import Final

from tunec.compiler.diagnostics.allow import Allowance
from tunec.compiler.diagnostics.diagnostic import Fix, Label
from tunec.compiler.diagnostics.wording import did_you_mean, nearest, quoted
from tunec.compiler.lints.context import OUTSIDE, LintContext, Missing, Unread
from tunec.compiler.lints.document import TRAINERS, Document, Place
from tunec.compiler.lints.effective import CLASSES
from tunec.compiler.lints.facts.launch import launches, starts_an_example
from tunec.compiler.lints.kinds import fields_of, keys_by_name, own_keys
from tunec.compiler.lints.mentions import writes
from tunec.compiler.lints.neighbours import is_python
from tunec.compiler.lints.rule import ALWAYS, Finding, rule
from tunec.compiler.lints.schemas import Schema, kinds_of, schemas
from tunec.schemas.source import lines_of, start_of

_TOLD: Final = {"accelerate": "accelerate's", "deepspeed": "DeepSpeed's", "axolotl": "Axolotl's"}
_OTHER_READERS: Final = ("deepspeed", "axolotl", "llamafactory", "simpletuner", *TRAINERS)


@rule(
    "error",
    "parse",
    consumers=("accelerate", "transformers"),
    reads=("launch:flags.config_file", "launch:flags.deepspeed_config_file"),
)
def file_of_another_reader(run: LintContext) -> Iterator[Finding]:
    """A file of another program is named where the reader expects its own."""
    for document in launches(run, "accelerate"):
        at = document.get("flags.config_file")
        other = _named(run, at, "accelerate", _OTHER_READERS)
        if at is not None and other is not None:
            yield _file_finding(
                at,
                other,
                "accelerate launch reads its own configuration there",
                "accelerate: a `distributed_type` must be specified, or: had unknown keys",
                _mend(other),
            )
        yield from _of_deepspeed(run, document.get("flags.deepspeed_config_file"))


def _of_deepspeed(run: LintContext, at: Place | None) -> Iterator[Finding]:
    other = _named(run, at, "deepspeed", ("accelerate",))
    if at is not None and other is not None:
        yield _file_finding(
            at,
            other,
            "DeepSpeed's JSON is read there",
            "json cannot read it: expected a path to an existing deepspeed config",
            "start the run by `accelerate launch --config_file` with it, or name a JSON",
        )


def _mend(other: Document) -> str:
    if other.kind == "deepspeed":
        return "write --use_deepspeed --deepspeed_config_file, or name an accelerate file"
    return "give it to the script, behind its name"


def _named(
    run: LintContext, at: Place | None, own: str, others: tuple[str, ...]
) -> Document | None:
    """The named file if it is another program's; None if one of the reader's has that name too."""
    if at is None or not isinstance(at.value, str):
        return None
    name = PurePath(at.value).name
    mine = [each for each in run.documents if PurePath(each.name).name == name]
    mine = [each for each in mine if not each.is_view and each.format != "shell"]
    if any(each.kind == own for each in mine):
        return None
    return next((each for each in mine if each.kind in others), None)


def _file_finding(at: Place, other: Document, what: str, why: str, mend: str) -> Finding:
    whose = _TOLD.get(other.kind, "a trainer's")
    return Finding(
        f"{at.value} is {whose} file, and {what}", (at.label("not read so"),), (why,), mend
    )


@rule("warning", "parse", consumers=("transformers", "accelerate", "deepspeed"), reads=ALWAYS)
def missing_file(run: LintContext) -> Iterator[Finding]:
    """A file names another file that does not exist."""
    for each in run.missing:
        if each.why == OUTSIDE:
            yield _not_followed(each)
            continue
        if each.place.path.endswith("hostfile"):
            yield _no_hosts(each)
            continue
        if _is_made_later(run, each) or _is_beside_program(run, each):
            continue
        yield Finding(
            f"{each.path} cannot be read: {each.why}",
            (each.place.label("named here"),),
            ("looked for beside this file, around it, and where tunec was started",),
            "give the file, or run tunec where the training is started",
            severity="note" if _is_elsewhere(run, each) or _is_another_place(run, each) else None,
        )


def _is_beside_program(run: LintContext, each: Missing) -> bool:
    """Whether the program and the file lie in one folder, in which the script is started."""
    return any(run.own.lie_together(name, each.path) for name in _programs(run, each))


_OWN_WORD: Final = re.compile(r"add_argument\(\s*[\"'](?!-)")


def _is_own_word(run: LintContext, each: Missing) -> bool:
    """Whether a program here takes a word without a flag itself: of data, most likely."""
    sources = [run.own.text_of(name) or "" for name in _programs(run, each)]
    return not each.place.path and any(map(_OWN_WORD.search, sources))


def _is_another_place(run: LintContext, each: Missing) -> bool:
    """Whether the programs that the script starts are all missing, though others are here."""
    programs = _programs(run, each)
    return bool(programs) and all(run.own.lacks_program(name) for name in programs)


def _programs(run: LintContext, each: Missing) -> list[str]:
    return [name for name in run.started.get(each.place.document.name, {}) if is_python(name)]


def _is_followed(run: LintContext, each: Missing) -> bool:
    """Whether a script changes to a folder that holds the program that it starts."""
    folder = each.place.document.folder
    started = (PurePosixPath(folder, name).as_posix() for name in _programs(run, each))
    is_around = f"/{folder}/" in f"/{each.place.document.name}"
    here = any(not run.own.lacks_program(name) for name in started)
    here = here and (is_around or run.own.has_folder(folder))
    return bool(folder) and not folder.startswith(("/", "~", "$")) and here


_CHECKOUTS: Final = re.compile(
    r"(?i)(?:\./)?(?:axolotl|llama-?factory|trl|ms-swift|transformers|accelerate|peft)/"
)
"""Folders that people clone a program into and start their runs beside."""
_DATA: Final = re.compile(r"(?i)(?:\A|/)(?:data|data_?sets?|corpus|corpora|samples)/")
"""Folders of data: a word below such a folder that is no flag's value is not a config."""
_EXAMPLES: Final = re.compile(r"(?:\./)?examples/")
"""The folder of configs in the checkouts of Axolotl and LLaMA-Factory."""
_WITH_EXAMPLES: Final = re.compile(r"\b(?:axolotl\b|llamafactory-cli\b|src/train(?:_bash)?\.py\b)")


def _is_elsewhere(run: LintContext, each: Missing) -> bool:
    """Whether the file may exist where the command is run, but not where the command is stored."""
    is_left = _is_left(each.place) and not _is_followed(run, each)
    if _SHIPPED in each.why or is_left or _CHECKOUTS.match(each.path):
        return True
    if not each.place.path and (_DATA.search(each.path) or _is_own_word(run, each)):
        return True
    return bool(_EXAMPLES.match(each.path) and _WITH_EXAMPLES.search(each.place.document.text))


_GOES: Final = re.compile(r"^\s*(?:cd|pushd)\s+(?!-)\S")


def _is_left(place: Place) -> bool:
    """Whether a script changes its folder before it names the file."""
    before = lines_of(place.document.text)[: place.span.line]
    return place.document.format == "shell" and any(_GOES.match(line) for line in before)


_SHIPPED: Final = "it is taken as"
"""Continuation of the reason if a trainer's own file of that name is used: its image starts in that
file's folder (`tunec.compiler.lints.neighbours`)."""
_OF_RUNS: Final = re.compile(r"(?:^|/)(?:checkpoint-\d+|checkpoints?|out|outputs?|results?|runs)/")
"""Folders that hold a run's output."""
_OUTPUTS: Final = ("output_dir", "logging_dir")


def _is_made_later(run: LintContext, each: Missing) -> bool:
    """Whether a run writes the file, or the script that names it does."""
    path = each.path.removeprefix("./")
    outputs = (place.value for key in _OUTPUTS for place in run.each("trainer", key))
    folders = [str(value).removeprefix("./").rstrip("/") for value in outputs if value]
    if _OF_RUNS.search(path) or any(path.startswith(f"{folder}/") for folder in folders):
        return True
    place = each.place
    text = place.document.text  # a variable may name the file before the line that writes it
    is_named = any(path in line for line in lines_of(text)[: place.span.line - 1])
    is_written = is_named or writes(text, path, is_missing=True)
    return place.document.format == "shell" and is_written


def _not_followed(each: Missing) -> Finding:
    return Finding(
        f"{each.path} was not read: {each.why}",
        (each.place.label("named here"),),
        ("the file that names it may come from a stranger",),
        "give both files to tunec lint, or allow files outside: --allow-outside",
        consequence="unclear",
        severity="note",
    )


def _no_hosts(each: Missing) -> Finding:
    return Finding(
        f"{each.path} cannot be read: {each.why}",
        (each.place.label("named here"),),
        ("the deepspeed launcher continues without it, and uses only this node's devices",),
        "give the file, or run tunec where the training is started",
        consequence="silent",
        severity="note",  # a list of one's own machines
    )


_MOST_KEYS: Final = 8
"""The number of a file's keys that are named."""
_OWN: Final = {
    "tunec": "it is a spec: `tunec plan` says what is wrong with it",
    "fleet": "it is a fleet: `tunec fleet` says what is wrong with it",
}
"""tunec's own files by their first key."""


@rule("warning", "unclear", consumers=("tunec",), reads=ALWAYS)
def unrecognised_file(run: LintContext) -> Iterator[Finding]:
    """A file of an unknown kind."""
    for each in run.unread:
        if "model_type" in each.keys:
            continue  # a model's own config, which rules about the model read
        if is_python(each.name):
            yield _without_calls(each.name)
            continue
        said = (
            f"its keys are {quoted(each.keys[:_MOST_KEYS], 'and')}"
            if each.keys
            else "it has no keys"
        )
        yield Finding(
            f"{each.name} is no config that tunec knows",
            (Label("not checked", start_of(each.name)),),
            (said, *_meant(run, each), f"known: {', '.join(run.targets)}"),
            _remedy(run, each),
        )


def _remedy(run: LintContext, file: Unread) -> str:
    own = _OWN.get(file.keys[0]) if file.keys else None
    if own is not None:
        return own
    named = [name for name in run.environment.readers if name in run.targets]
    if named:
        return f"give it keys that {quoted(named, 'or')} reads: it has too few of them"
    return "name its reader with --from NAME"


def _meant(run: LintContext, file: Unread) -> Iterator[str]:
    """Suggestions for keys that nearly match the keys which the file's name implies."""
    known = keys_by_name(file.name, run.targets)
    for key in file.keys[:_MOST_KEYS] if known else ():
        hint = did_you_mean(nearest(key, known)) if key not in known else None
        if hint is not None:
            yield f"`{key}`: {hint}"


def _without_calls(name: str) -> Finding:
    return Finding(
        f"{name} calls nothing that tunec reads",
        (Label("not checked", start_of(name)),),
        (
            (
                "read are calls of TrainingArguments, the configs of TRL, LoraConfig and "
                "from_pretrained, under the names of their imports"
            ),
        ),
        "give the file that holds these calls",
    )


def findings(unused: Iterable[Allowance], known: Iterable[str]) -> Iterator[Finding]:
    """The findings about allowances in files that hid nothing; `known` are all rules' names.

    They are known only after every other rule has run, so the engine calls this function.
    """
    names = frozenset(known)
    for each in unused:
        if each.span is not None:
            what = "hides nothing" if each.name in names else "names no rule"
            label = Label("written here", each.span)
            yield Finding(f"`allow({each.name})` {what}", (label,), (), "remove it")


@rule("note", "silent", consumers=("tunec",), reads=())
def unused_allowance(_: LintContext) -> Iterator[Finding]:
    """A comment allows a finding that does not occur; the engine reports this after all rules."""
    return iter(())


_DASHED: Final = re.compile(
    r"(-(?!-)|[-\u2010-\u2015\u2212]*[\u2010-\u2015\u2212]-*)([A-Za-z]\w{2,})"
)


@rule("error", "parse", consumers=("transformers",), reads=("launch:script",))
def flag_with_another_dash(run: LintContext) -> Iterator[Finding]:
    """A trainer's flag with one dash, or with a typographic dash."""
    kinds = {each.name: each.kind for each in run.of(*TRAINERS) if each.format == "shell"}
    for document in run.of("launch"):
        script, kind = document.get("script"), kinds.get(document.name)
        if script is None or kind is None:
            continue
        for item in script.node.items or ():
            found = _DASHED.fullmatch(str(item.value))
            if found is not None and found[2] in fields_of("hf") | fields_of(kind):
                word = Place(document, "script", item)
                yield _dash_finding(word, found[1], found[2])


def _dash_finding(word: Place, dash: str, name: str) -> Finding:
    what = "one dash" if dash == "-" else "a dash that typesetting puts in"
    return Finding(
        f"{dash}{name} is no flag: it begins with {what}",
        (Label("not a flag", word.span, name, True),),
        ("argparse hands the word on, and the trainer's parser refuses what no argument takes",),
        f"write --{name}",
        Fix((word.replaced(f"--{name}"),), "safe") if dash == "-" else None,
    )


_OF_SCRIPTS: Final = frozenset({"deepspeed", "resume_from_checkpoint"})
"""Flags that scripts with their own arguments take as switches: deepspeed 0.14.5 to 0.19.8
`add_config_arguments` has a `--deepspeed` without a value."""
_OF_CALLER: Final = ("$@", '"$@', "$*", '"$*', "${@", '"${@')
_SWITCHES: Final = frozenset({"debug"})
"""Names of the trainer's flags that mean something else in most scripts."""


@rule("error", "parse", consumers=("transformers",), reads=("trainer:*",))
def flag_without_value(run: LintContext) -> Iterator[Finding]:
    """A trainer's flag that needs a value but has none."""
    for document in run.of(*TRAINERS):
        if document.format != "shell" or document.is_view:
            continue
        known = [each.get("properties", {}) for each in schemas(run, document)]
        for path, place in document.found.items():
            is_bare = place.value is True and place.node.written is None
            asks = known and all(_asks(each.get(path)) for each in known)
            if (
                is_bare
                and asks
                and not _is_switch(run, document, path)
                and not _is_handed_on(place)
            ):
                yield Finding(
                    f"--{path} has no value",
                    (place.label("a value should follow"),),
                    ("argparse: expected one argument, or at least one",),
                    f"write a value behind --{path}, or leave it out",
                    # TRL's bf16 had a default before 0.20
                    certain=not _is_optional(known[-1].get(path)) or _is_named(run, document),
                )


def _asks(field: Schema | None) -> bool:
    """Whether a field's flag needs a value: the field is not boolean, or has no default."""
    if field is None:
        return False
    kinds = set(kinds_of(field)) - {"null"}
    return _is_optional(field) or (bool(kinds) and "boolean" not in kinds)


def _is_optional(field: Schema | None) -> bool:
    """Whether a field is a boolean or null, with null as the default."""
    is_it = field is not None and {*kinds_of(field)} == {"boolean", "null"}
    return is_it and field is not None and field.get("default") is None


def _is_named(run: LintContext, document: Document) -> bool:
    """Whether the release of the class that reads a document is named."""
    package = next((each for _, each in CLASSES.get(document.kind, ())), None)
    return package is not None and run.release(package).is_named


def _is_switch(run: LintContext, document: Document, path: str) -> bool:
    """Whether the script may silently take the flag as its own switch."""
    if starts_an_example(run, document) and document.get("deepspeed_config") is None:
        return path in _SWITCHES
    own = own_keys(document.target, document.file, document.found)
    if run.own.declares(path, as_flag=True):
        return True
    return path in _SWITCHES or (path in _OF_SCRIPTS and bool(own))


def _is_handed_on(place: Place) -> bool:
    """Whether the script's own arguments follow the flag: the first may be its value."""
    span, lines = place.span, lines_of(place.document.text)
    behind = lines[span.end_line - 1][span.end_column - 1 :] if span.end_line <= len(lines) else ""
    return behind.strip().startswith(_OF_CALLER)
