"""A name of a project that Trackio does not take, or gives up."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.lints.document import TRL
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_TRACKERS: Final = frozenset({"trackio", "all"})
_PREFIX: Final = "registry-"
_SUFFIXES: Final = (
    *("_system", "_configs", "_traces", "_artifacts", "_artifact_versions", "_artifact_aliases"),
    *("_run_artifact_links", "_external_run_artifact_links"),
)
_NAMELESS: Final = "write a name, or leave project out: it is huggingface then"


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("hf", *TRL):
        told, at = document.get("report_to"), document.get("project")
        if document.is_view or told is None or at is None:
            continue
        names = told.value if isinstance(told.value, list) else [told.value]
        if _TRACKERS.intersection(each for each in names if isinstance(each, str)):
            yield from _of(at, told)


def _of(at: Place, told: Place) -> Iterator[Finding]:
    beside = told.label("", primary=False)
    if at.value is None:
        yield Finding(
            "project is null, and no text",
            (at.label("no name"), beside),
            ("Trackio goes through its letters: TypeError",),
            _NAMELESS,
            consequence="init",
        )
    elif isinstance(at.value, str):
        name = "".join(each for each in at.value if each.isalnum() or each in "-_")
        yield from _taken(at, name, beside) if name else [_left_out(at, beside)]


def _left_out(at: Place, beside: Label) -> Finding:
    return Finding(
        f"project {at.value!r} leaves no name: the run is kept under `default`",
        (at.label("no name"), beside),
        ("Trackio keeps letters, digits, - and _ of a name",),
        _NAMELESS,
    )


def _taken(at: Place, name: str, beside: Label) -> Iterator[Finding]:
    """A name under which Trackio keeps files of its own."""
    ending = next((each for each in _SUFFIXES if name != each and name.endswith(each)), None)
    if name.startswith(_PREFIX) or ending:
        yield Finding(
            f"project {at.value} is refused by Trackio",
            (at.label("refused"), beside),
            (f"it keeps files of its own under names with {ending or _PREFIX}",),
            "write another name",
            consequence="init",
        )


RULE = Rule(
    name="tracker-project-refused",
    severity="warning",
    consequence="silent",
    consumers=("transformers",),
    sources=(
        (
            "transformers 4.57.6 to 5.23.0 integrations/integration_utils.py "
            "`TrackioCallback.setup`: trackio.init(project=args.project)"
        ),
        (
            "trackio 0.43.0 utils.py `canonical_project_name`: safe or default; sqlite_storage.py "
            "`validate_project_name`"
        ),
    ),
    check=_check,
)
