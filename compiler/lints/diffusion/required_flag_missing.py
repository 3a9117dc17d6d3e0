"""A flag that SimpleTuner cannot do without is written with nothing, or alone left out."""

from collections.abc import Iterator, Mapping
from typing import Final

from tunec.compiler.diagnostics.diagnostic import Label
from tunec.compiler.lints.diffusion.asked import configs, said
from tunec.compiler.lints.diffusion.env_file import MORE, extra, is_env_file, variables_of
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_REQUIRED: Final[Mapping[str, str]] = {
    "model_family": "flux",
    "model_type": "lora",
    "optimizer": "adamw_bf16",
    "output_dir": "output/models",
    "data_backend_config": "config/multidatabackend.json",
}
"""simpletuner 3.1.6 and 4.10.1 helpers/configuration/cmd_args.py `_is_required`, with a value."""
_EVER: Final = ("model_family", "optimizer")
"""bghira/SimpleTuner v1.0 to v2.2.1 helpers/configuration/cmd_args.py: required=True."""
_LATE: Final = "simpletuner>=3.0"
_DATA: Final = "data_backend_config"
_WHOLE: Final = 10
"""Keys of a file that is no part of another: threads show up to nine of them, and leave the path of
the data sets out. The files that SimpleTuner ships have 25 and more."""


def _check(run: Run) -> Iterator[Finding]:
    needed = _EVER if run.runs(_LATE) is False else tuple(_REQUIRED)
    for document in configs(run):
        empty = [at for flag in needed for at in _empty(document, flag)]
        for at in empty:
            yield _nothing(at)
        absent = [flag for flag in _REQUIRED if not _is_there(document, flag)]
        if not empty and len(absent) == 1 and absent[0] in needed and _is_whole(document):
            yield _left_out(document, absent[0])


def _spelt(document: Document, flag: str) -> Iterator[str]:
    yield from variables_of(flag) if is_env_file(document) else (flag, f"--{flag}")


def _empty(document: Document, flag: str) -> Iterator[Place]:
    """Where a flag is given null or nothing, of which its loader makes no flag."""
    if said(document, flag) is not None or flag in extra(document):
        return
    for name in _spelt(document, flag):
        at = document.get(name)
        if at is not None and (at.value is None or not str(at.value).strip()):
            yield at


def _is_there(document: Document, flag: str) -> bool:
    is_open = {flag, f"--{flag}", MORE, *variables_of(flag)} & document.unknown
    return bool(is_open) or said(document, flag) is not None


def _is_whole(document: Document) -> bool:
    """Who names the data sets, three of the other four, and much else, shows no part of a file."""
    return _is_there(document, _DATA) and len(document.root.fields or ()) >= _WHOLE


def _nothing(at: Place) -> Finding:
    return Finding(
        f"{at.path} is empty, and SimpleTuner asks for it",
        (at.label("left out"),),
        ("null and an empty text become no flag: the following arguments are required",),
        "write its value",
    )


def _left_out(document: Document, flag: str) -> Finding:
    name = next(_spelt(document, flag), flag)
    sign = "=" if document.format != "json" else ": "
    return Finding(
        f"{document.name} says all that SimpleTuner asks for, but for {name}",
        (Label("without it", document.start(), flag, True),),
        ("the following arguments are required",),
        f"write {name}{sign}{_REQUIRED[flag]}",
        severity="warning",
    )


RULE = Rule(
    name="required-flag-missing",
    severity="error",
    consequence="parse",
    consumers=("simpletuner",),
    sources=(
        (
            "simpletuner 3.1.6 and 4.10.1 helpers/configuration/cmd_args.py `_is_required`: "
            "model_family, model_type, optimizer, output_dir, data_backend_config; cli_utils.py "
            "`mapping_to_cli_args`: if raw_value is None: continue; loader.py "
            "`load_env_variables`: if value and isinstance(value, str)"
        ),
    ),
    check=_check,
)
