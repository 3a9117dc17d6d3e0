"""Names and positions of launchers' flags."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Fix, Label
from tunec.compiler.diagnostics.wording import nearest
from tunec.compiler.frontend.nodes import Node, place
from tunec.compiler.frontend.shell_launch import STARTERS
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place
from tunec.compiler.lints.facts.launch import flags, launches
from tunec.compiler.lints.kinds import fields_of
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.frozen import replace
from tunec.targets.launch.flags import FLAGS, MODULE_FLAGS
from tunec.targets.launch.lines import behind
from tunec.targets.launch.rules.launcher_values import has_word_for_script

_OWN: Final[Mapping[str, Mapping[str, str]]] = {
    "torchrun": {"devices": "nproc_per_node", "nodes": "nnodes", "rank": "node_rank"},
    "deepspeed": {"devices": "num_gpus", "nodes": "num_nodes", "rank": "node_rank"},
    "accelerate": {"devices": "num_processes", "nodes": "num_machines", "rank": "machine_rank"},
}
"""Each launcher's flags for the processes of a node (accelerate: of all nodes), and for the
nodes."""
_ALONE: Final = {"deepspeed": ("include", "exclude", "hostfile"), "torchrun": ("rdzv_endpoint",)}
"""Flags that accelerate and the other launcher lack, or have in another form."""
_READS: Final = flags(
    *dict.fromkeys(name for names in _OWN.values() for name in names.values()),
    *(name for names in _ALONE.values() for name in names),
)


@rule("error", "parse", consumers=("torch", "deepspeed", "accelerate"), reads=_READS)
def launcher_flag_of_another(run: LintContext) -> Iterator[Finding]:
    """A launcher is given a flag that only another launcher has."""
    for document in launches(run, *_OWN):
        launcher = str(document.value("launcher"))
        for name, (owner, meant) in foreign(launcher).items():
            if (at := document.get(f"flags.{name}")) is not None:
                yield _another_finding(at, name, (launcher, owner), _OWN[launcher].get(meant))


def foreign(launcher: str) -> dict[str, tuple[str, str]]:
    """The flags that this launcher lacks: the launcher that has each, and what it sets."""
    own = _OWN[launcher].values()
    found = {
        name: (owner, meant)
        for owner, names in _OWN.items()
        for meant, name in names.items()
        if name not in own
    }
    alone = {
        name: (owner, "")
        for owner, names in _ALONE.items()
        for name in names
        if owner != launcher and not (launcher == "accelerate" and name.startswith("rdzv"))
    }
    return found | alone


def _another_finding(at: Place, name: str, who: tuple[str, str], meant: str | None) -> Finding:
    launcher, owner = who
    return Finding(
        f"--{name} is a flag of {owner}, and {launcher} starts the run",
        (at.label(f"{launcher} has no such flag"),),
        (f"{launcher}: unrecognized arguments: --{name}",),
        f"write --{meant}" if meant else f"remove it, or start the run with {owner}",
    )


_PREFIX: Final = "flags."
_MOST: Final = 3
"""The most unknown flags; more are those of a script after a placeholder."""
_UNDASHED: Final = "deepspeed"
"""The launcher whose parser has its flags only with `_`."""


@rule("error", "parse", consumers=("torch", "deepspeed", "accelerate"), reads=("launch:flags",))
def launcher_flag_unknown(run: LintContext) -> Iterator[Finding]:
    """A flag that no release of the launcher has."""
    for document in launches(run, *FLAGS):
        launcher = str(document.value("launcher"))
        if document.get("script") is None:
            continue  # `uv pip install deepspeed -U`
        named = {path.removeprefix(_PREFIX): at for path, at in document.found.items()}
        named = {n: at for n, at in named.items() if at.path != n and "." not in n}
        if sum(not _has(launcher, each, document) for each in named) > _MOST:
            continue  # the script is not where it is taken to be
        for name, at in named.items():
            if name in foreign(launcher):
                continue
            if not _has(launcher, name, document):
                yield _unknown(launcher, name, at)
            elif launcher == _UNDASHED and "-" in _written(at):
                yield _dashed(launcher, name, at)


def _has(launcher: str, name: str, document: Document) -> bool:
    """Whether the parser has the flag, or one with that prefix, which argparse accepts."""
    known = FLAGS[launcher]
    word = document.get("launcher")
    if launcher == "torchrun" and word is not None and "torchrun" not in str(word.node.written):
        known |= MODULE_FLAGS
    if name.startswith("no_") and name not in known:
        name = name.removeprefix("no_")
    return any(each.startswith(name) for each in known)


def _written(place: Place) -> str:
    """The flag as written in the file, without its dashes."""
    span = place.key_span
    return behind(place.document, span)[: span.end_column - span.column].lstrip("-")


def _unknown(launcher: str, name: str, place: Place) -> Finding:
    near = next(iter(nearest(name, FLAGS[launcher])), None)
    written = _written(place) or name
    return Finding(
        f"{launcher} has no flag --{written}",
        (place.key_label("not known"),),
        (f"{launcher}: unrecognized arguments: --{written}",),
        f"did you mean `--{near}`?" if near else "remove it, or write it after the script",
        Fix((place.renamed(near),), "unsafe") if near and place.node.key_span else None,
    )


def _dashed(launcher: str, name: str, place: Place) -> Finding:
    written, known = _written(place), FLAGS[launcher]
    name = name if name in known else min(each for each in known if each.startswith(name))
    return Finding(
        f"{launcher} has --{name}, and not --{written}",
        (place.key_label("not known"),),
        (f"{launcher}: unrecognized arguments: --{written}",),
        f"write --{name}",
    )


_FLAGS: Final[Mapping[str, tuple[str, ...]]] = {
    "torchrun": (
        *("nproc_per_node", "nnodes", "node_rank", "rdzv_backend", "rdzv_endpoint", "rdzv_id"),
        *("standalone", "master_port", "master_addr"),
    ),
    "deepspeed": ("num_gpus", "num_nodes", "include", "exclude", "hostfile", "master_port"),
    "accelerate": (
        *("num_processes", "num_machines", "machine_rank", "main_process_port", "multi_gpu"),
        *("main_process_ip", "use_deepspeed", "use_fsdp", "gpu_ids", "deepspeed_config_file"),
    ),
}

_OF_ACCELERATE: Final = re.compile(r"(?i)accelerate|zero[-_]?[123]|fsdp|multi[-_]gpu|deepspeed")


@rule("error", "silent", consumers=("torch", "deepspeed", "accelerate"), reads=("launch:script",))
def launcher_flags_behind_script(run: LintContext) -> Iterator[Finding]:
    """A launcher's flags follow the script, which gets them instead."""
    for document in launches(run, *_FLAGS):
        launcher, script = str(document.value("launcher")), document.get("script")
        if script is None or not script.node.items or has_word_for_script(document):
            continue
        if not isinstance(script.node.items[0].value, str):
            continue  # `"${ARGS[@]}"`, which may hold the launcher's own flags
        for item in script.node.items[1:]:
            name = _name(item)
            is_given = document.get(f"flags.{name}") or f"flags.{name}" in document.unknown
            if name in _FLAGS[launcher] and not is_given:
                yield _flags_finding(document, launcher, item, script.node.items[0])
        if launcher == "accelerate" and document.get("flags.config_file") is None:
            yield from _of_file(document, script.node.items)


def _of_file(document: Document, words: Sequence[Node]) -> Iterator[Finding]:
    """`--config_file`, which scripts have too, with a file name that is typical of accelerate."""
    for item, after in zip(words[1:], [*words[2:], *words[:1]], strict=len(words) > 1):
        value = str(item.value).partition("=")[2] or str(after.value)
        if _name(item) == "config_file" and _OF_ACCELERATE.search(value):
            yield replace(
                _flags_finding(document, "accelerate", item, words[0]), severity="warning"
            )


def _name(item: Node) -> str:
    text = item.value if isinstance(item.value, str) else ""
    return text.partition("=")[0].removeprefix("--").replace("-", "_") if text[:2] == "--" else ""


def _flags_finding(document: Document, launcher: str, item: Node, script: Node) -> Finding:
    flag = str(item.value).partition("=")[0]
    return Finding(
        f"{flag} comes after {script.value}, which gets it instead of {launcher}",
        (
            Label(f"not for {launcher}", place(item), "script", True),
            Label("the launcher's own flags end here", place(script), "script", False),
        ),
        (f"{launcher} starts as many processes as it does without the flag",),
        f"write {flag} before {script.value}",
        consequence="parse" if _is_strict(document) else None,
    )


def _is_strict(document: Document) -> bool:
    """Whether the script's own parser refuses unknown flags."""
    return str(document.value("script", [""])[0]).startswith(("trl", "llamafactory"))


_REPEATED: Final = ("--set", "--add", "--override", "-o", "--dataset", "--dataset_name", "--env")
"""Flags that programs accept several times."""


@rule("warning", "silent", consumers=("transformers",), reads=("launch:script",))
def flag_given_twice(run: LintContext) -> Iterator[Finding]:
    """A command has a flag twice, and the last value counts."""
    for document in launches(run):
        script = document.get("script")
        items = script.node.items if script is not None and script.node.items else ()
        if document.value("launcher") in STARTERS:
            continue
        first: dict[str, tuple[Node, str]] = {}
        for at, item in enumerate(items):
            name, value = _flag(item), _value(items, at)
            if name and name in first and first[name][1] != value and name not in _REPEATED:
                found = _given_finding(name, first[name], (item, value))
                is_meant = _is_from_elsewhere(document, first[name][0]) or value in _SWITCHED_OFF
                found = replace(found, severity="note") if is_meant else found
                yield replace(found, certain=_is_of_the_trainer(name[2:]))
            elif name:
                first[name] = item, value


_SWITCHED_OFF: Final = ("none", "None", '"none"')
"""A last value that takes back what a list of flags for all runs has."""
_SET: Final = re.compile(r"\$\{?\w+|[\"']?\$\{?\w+\[@\]")


def _is_from_elsewhere(document: Document, flag: Node) -> bool:
    """Whether the first value comes from a variable for all commands, which this one overrides."""
    lines = document.text.splitlines()
    line = lines[flag.span.line - 1] if 0 < flag.span.line <= len(lines) else ""
    return _SET.search(line[flag.span.column - 1 :].partition(" --")[0]) is not None


def _is_of_the_trainer(name: str) -> bool:
    """Whether it is a field of a class with single values; other programs may collect several."""
    return any(name in fields_of(kind) for kind in ("hf", *TRL))


def _flag(item: Node) -> str:
    text = item.value if isinstance(item.value, str) else ""
    named = text.startswith("--") and text[2:3].isalpha()
    return text.partition("=")[0].replace("-", "_").replace("__", "--", 1) if named else ""


def _value(items: tuple[Node, ...], at: int) -> str:
    text = str(items[at].value)
    if "=" in text:
        return text.partition("=")[2]
    following = items[at + 1].value if at + 1 < len(items) else "--"
    return "" if not isinstance(following, str) or following.startswith("--") else following


def _given_finding(name: str, first: tuple[Node, str], second: tuple[Node, str]) -> Finding:
    return Finding(
        f"{name} is given twice: {second[1] or 'on'} counts, and {first[1] or 'on'} does not",
        (
            Label("does not count", place(first[0]), "script", True),
            Label("counts", place(second[0]), "script", False),
        ),
        ("argparse silently keeps the last value of a flag",),
        "leave one out",
    )
