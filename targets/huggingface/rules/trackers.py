"""Rules about trackers, the Hub and secrets."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from tunec.compiler.diagnostics.diagnostic import Fix, Label
from tunec.compiler.diagnostics.wording import did_you_mean, nearest, shown
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place, also
from tunec.compiler.lints.facts.launch import launches, variable
from tunec.compiler.lints.facts.training_loop import configs
from tunec.compiler.lints.rule import ALWAYS, Finding, keys, rule

_PUSH_KEYS: Final = ("hub_model_id", "hub_strategy", "hub_always_push")


@rule("note", "silent", consumers=("transformers",), reads=keys("trainer", *_PUSH_KEYS))
def hub_keys_without_push(run: LintContext) -> Iterator[Finding]:
    """Keys for an upload to the Hub are set, but no upload is requested."""
    for document in run.of("trainer"):
        if document.is_view or "push_to_hub" in document.unknown:
            continue  # Axolotl pushes wherever hub_model_id is written
        push = document.get("push_to_hub")
        key = next((p for name in _PUSH_KEYS if (p := document.get(name)) and p.value), None)
        if key is None or (push is not None and push.value is not False):
            continue
        yield Finding(
            f"{key.path} without push_to_hub: nothing is uploaded while it trains",
            (key.label("not used"), *also(push)),
            (),
            "write push_to_hub: true",
            Fix((push.replaced(True),), "unsafe") if push is not None else None,
            severity="note" if push is not None else None,  # turned off on purpose
        )


_AT_SAVES: Final = ("checkpoint", "all_checkpoints")
"""Strategies that push more than `every_save`, the default."""


@rule(
    "warning",
    "silent",
    consumers=("transformers", "axolotl"),
    reads=("axolotl:hub_model_id", "trainer:hub_strategy"),
)
def hub_without_saves(run: LintContext) -> Iterator[Finding]:
    """The model is to be pushed whenever it is saved, but it is never saved."""
    for document in configs(run):
        yield from _never_pushed(document.get("hub_model_id"), document.get("save_strategy"))
    for document in run.of("trainer"):
        push, when = document.get("push_to_hub"), document.get("hub_strategy")
        is_on = push is not None and push.value is True and not document.is_view
        if is_on and when is not None and when.value in _AT_SAVES:
            yield from _never_pushed(when, document.get("save_strategy"))


def _never_pushed(at: Place | None, strategy: Place | None) -> Iterator[Finding]:
    if at is None or not at.value or strategy is None or strategy.value not in ("no", False):
        return
    yield Finding(
        f"{at.path} pushes what is saved, and save_strategy is no",
        (at.label("nothing is pushed while it trains"), strategy.label("", primary=False)),
        ("a run that is cut short leaves nothing on the Hub",),
        "write save_strategy: epoch, or steps",
    )


_SIGNS: Final = ("run_name", "logging_dir")
_VARIABLES: Final = ("WANDB_PROJECT", "WANDB_NAME", "TENSORBOARD_LOGGING_DIR", "MLFLOW_RUN_ID")


@rule(
    "note",
    "silent",
    consumers=("transformers>=5",),
    reads=(
        *keys("trainer", *_SIGNS),
        *keys("launch", *(f"environment.{each}" for each in _VARIABLES)),
    ),
)
def nothing_is_reported(run: LintContext) -> Iterator[Finding]:
    """A run has a name for its tracker, but no tracker."""
    documents = [each for each in run.of("hf", *TRL) if not each.is_view]
    if not documents or any("report_to" in each.unknown for each in documents):
        return
    if run.said("trainer", "report_to") is not None:
        return
    sign = next((p for key in _SIGNS for d in documents if (p := d.get(key))), None) or _set(run)
    if sign is None:
        return
    yield Finding(
        f"{sign.path.rpartition('.')[2]} is set, and report_to is left out: nothing is reported",
        (sign.label("for a tracker"),),
        ("before 5.0 every installed tracker was used; now only those that report_to names",),
        "write report_to: wandb, or tensorboard",
        severity=None if _is_whole(run, documents) else "note",
    )


def _is_whole(run: LintContext, documents: Sequence[Document]) -> bool:
    """Whether the release is known, and no flag names a file that may set the tracker."""
    is_elsewhere = any(each.get("config") is not None for each in documents)
    return run.release("transformers").is_named and not is_elsewhere


def _set(run: LintContext) -> Place | None:
    found = (each for document in run.of("launch") for each in document.found.values())
    return next((each for each in found if each.path.rpartition(".")[2] in _VARIABLES), None)


_TOKEN: Final = re.compile(r"hf_[A-Za-z0-9]{30,}|sk-[A-Za-z0-9_-]{20,}")
_KEY: Final = re.compile(r"[0-9a-f]{40}")
_NAME: Final = re.compile(r"(?:api_?key|token|secret)$", re.IGNORECASE)


@rule(
    "warning",
    "silent",
    consumers=("transformers",),
    reads=ALWAYS,  # a secret may stand at any key
)
def secret_in_file(run: LintContext) -> Iterator[Finding]:
    """The file contains a token or a key of a service."""
    seen: set[tuple[str, str]] = set()
    for document in run.documents:
        for place in () if document.is_view else document.where(_is_secret).values():
            at = (place.document.name, place.value)
            if at not in seen:
                seen.add(at)
                yield _secret_finding(place)


def _is_secret(path: str, value: Any) -> bool:
    name = path.rpartition(".")[2]
    if not isinstance(value, str):
        return False
    return bool(_TOKEN.fullmatch(value) or (_NAME.search(name) and _KEY.fullmatch(value)))


def _secret_finding(place: Place) -> Finding:
    return Finding(
        f"`{place.path}` holds a secret in plain text",
        (place.label("readable by anyone who sees the file"),),
        ("configurations are committed, and saved beside every checkpoint",),
        "remove it, revoke it, and log in on the machine (hf auth login, wandb login)",
    )


_UNREAD_KEYS: Final = (
    "project",
    "trackio_space_id",
    "trackio_bucket_id",
    "trackio_static_space_id",
)
_READER: Final = "trackio"
_EVERY: Final = "all"


@rule("warning", "silent", consumers=("transformers",), reads=keys("trainer", *_UNREAD_KEYS))
def tracker_keys_unread(run: LintContext) -> Iterator[Finding]:
    """Settings of one tracker are given, but another one is in use."""
    for document in run.of("hf", *TRL):
        told = document.get("report_to")
        if document.is_view or told is None or "report_to" in document.unknown:
            continue
        names = _names(told.value)
        if not names or names & {_READER, _EVERY}:
            continue
        for key in _UNREAD_KEYS:
            place = document.get(key)
            if place is not None and place.value:
                yield Finding(
                    f"{key} does nothing: report_to is {', '.join(sorted(names))}",
                    (place.label("not read"), told.label("", primary=False)),
                    ("only Trackio reads it; wandb reads the variable WANDB_PROJECT",),
                    "write report_to: trackio, or remove it",
                )


def _names(value: Any) -> set[str]:
    """The trackers that a value names as words."""
    return {each for each in _trackers(value) if isinstance(each, str)}


_KNOWN: Final = (
    *("azure_ml", "comet_ml", "mlflow", "neptune", "tensorboard", "trackio", "wandb"),
    *("codecarbon", "clearml", "dagshub", "flyte", "dvclive", "swanlab", "kubeflow", "none", "all"),
)
"""transformers 4.40.2 to 5.23.0 integrations/integration_utils.py INTEGRATION_TO_CALLBACK."""
_NOTHING: Final = ("None", "False", "null", "no")
"""Words that mean no tracker but are none of the trainer's, even on a command line."""
_MEANT: Final = {
    "None": "none",
    "False": "none",
    "null": "none",
    "no": "none",
    "comet": "comet_ml",
    "tb": "tensorboard",
    "weights_and_biases": "wandb",
}


@rule("error", "init", consumers=("transformers",), reads=("trainer:report_to",))
def tracker_not_supported(run: LintContext) -> Iterator[Finding]:
    """The trainer does not support a requested tracker."""
    for place in run.each("trainer", "report_to"):
        if place.document.is_view:
            continue
        if place.document.format == "shell" and place.value not in _NOTHING:
            continue  # other programs have trackers of their own
        for name in _trackers(place.value):
            if name is None and _is_every(run):
                continue
            if name not in _KNOWN:
                yield _supported_finding(place, name)


def _is_every(run: LintContext) -> bool:
    """Whether None may mean every tracker, as before 5.0; also if no release is required."""
    release = run.release("transformers")
    is_required = release.is_named or release.pin is not None
    return run.runs("transformers<5") is True or not is_required


def _trackers(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _supported_finding(place: Place, name: Any) -> Finding:
    word = isinstance(name, str)
    near = [_MEANT[name]] if word and name in _MEANT else nearest(name, _KNOWN) if word else []
    mend = near[0] if len(near) == 1 else None if word else "none"
    fix = Fix((place.replaced(mend),), "safe" if not word else "unsafe") if mend else None
    return Finding(
        f"report_to {shown(name)} is no tracker",
        (place.label("not supported"),),
        ()
        if word
        else ("YAML reads no and off as false, and an empty value as null; the word is none",),
        did_you_mean(near) or ("write report_to: none" if not word else None),
        fix if not isinstance(place.value, list) else None,
    )


_TRACKERS: Final = frozenset({"trackio", "all"})
_PREFIX: Final = "registry-"
_SUFFIXES: Final = (
    *("_system", "_configs", "_traces", "_artifacts", "_artifact_versions", "_artifact_aliases"),
    *("_run_artifact_links", "_external_run_artifact_links"),
)
_NAMELESS: Final = "write a name, or leave project out: it is huggingface then"


@rule("warning", "silent", consumers=("transformers",), reads=("trainer:project",))
def tracker_project_refused(run: LintContext) -> Iterator[Finding]:
    """Trackio refuses or replaces a project name."""
    for document in run.of("hf", *TRL):
        told, at = document.get("report_to"), document.get("project")
        if document.is_view or told is None or at is None:
            continue
        if _TRACKERS & _names(told.value):
            yield from _refused_name(at, told)


def _refused_name(at: Place, told: Place) -> Iterator[Finding]:
    beside = told.label("", primary=False)
    if at.value is None:
        yield Finding(
            "project is null, and no text",
            (at.label("no name"), beside),
            ("Trackio iterates over its letters: TypeError",),
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
    """The project name is reserved: Trackio uses it for its own files."""
    ending = next((each for each in _SUFFIXES if name != each and name.endswith(each)), None)
    if name.startswith(_PREFIX) or ending:
        yield Finding(
            f"project {at.value} is refused by Trackio",
            (at.label("refused"), beside),
            (f"it keeps files of its own under names with {ending or _PREFIX}",),
            "write another name",
            consequence="init",
        )


@rule("error", "init", consumers=("transformers",), reads=("trainer:report_to",))
def tracker_turned_off(run: LintContext) -> Iterator[Finding]:
    """An environment variable turns off a tracker that the arguments request."""
    asked = [
        place for place in run.each("trainer", "report_to") if "wandb" in _trackers(place.value)
    ]
    for document in launches(run):
        off = variable(document, "WANDB_DISABLED")
        place = _of_command(asked, document)
        if off is not None and place is not None and str(off.value).lower() in _TRUE:
            yield _turned_off(run, place, off)
    for place in asked:
        by_script = _DISABLED.search(place.document.text)
        if place.document.format == "python" and by_script and by_script[1].lower() in _TRUE:
            yield _turned_off(run, place, None)


_TRUE: Final = ("1", "true", "yes", "on")
_DISABLED: Final = re.compile(
    r"(?m)^[ \t]*os\.environ\[['\"]WANDB_DISABLED['\"]\][ \t]*=[ \t]*['\"](\w+)['\"]"
)


def _turned_off(run: LintContext, place: Place, off: Place | None) -> Finding:
    is_old = run.runs("transformers<5")
    return Finding(
        "report_to selects wandb, and WANDB_DISABLED "
        + ("no longer turns it off" if is_old is False else "turns it off"),
        (place.label("asked for"), *also(off, "turned off")),
        (
            "RuntimeError: WandbCallback requires wandb to be installed",
            "transformers 5 does not read the variable, and the run is reported",
        )[(is_old is False) :],
        "write report_to: none, or unset the variable",
        severity="warning" if is_old is not True else None,
        consequence="silent" if is_old is False else None,
    )


def _of_command(asked: list[Place], document: Document) -> Place | None:
    own = [place for place in asked if place.document.name == document.name]
    return next(iter((*own, *asked)), None)
