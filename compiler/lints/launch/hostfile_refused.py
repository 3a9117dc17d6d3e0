"""A line of the hostfile that the deepspeed launcher does not take."""

from collections.abc import Iterator

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.lints.launch.hosts import hostfiles
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run


def _check(run: Run) -> Iterator[Finding]:
    for document, entries in hostfiles(run):
        seen: dict[str, Label] = {}
        for each in entries:
            if each.slots is None:
                yield Finding(
                    f"the hostfile's line `{each.place.value}` is not HOST slots=NUMBER",
                    (each.label("refused"),),
                    ("Hostfile contains a bad entry: nothing is started",),
                    f"write {each.host} slots=8, with as many as the host has devices",
                )
            elif each.host in seen:
                yield Finding(
                    f"the hostfile names {each.host} twice",
                    (each.label("refused"), seen[each.host]),
                    ("Hostfile contains multiple entries: nothing is started",),
                    "give each host one line with all of its devices",
                )
            seen.setdefault(each.host, each.label("", primary=False))
        if not entries:
            yield Finding(
                "the hostfile names no host",
                (Label("no line of the form HOST slots=NUMBER", document.start()),),
                (),
                "write a line for each host",
            )


RULE = Rule(
    name="hostfile-refused",
    severity="error",
    consequence="init",
    consumers=("deepspeed",),
    sources=(
        (
            "deepspeed 0.14.5 to 0.19.8 launcher/runner.py `_parse_hostfile`: Hostfile contains a "
            "bad entry, Hostfile contains multiple entries, Hostfile is empty: ValueError"
        ),
        "deepspeedai/DeepSpeed#3669",
    ),
    check=_check,
)
