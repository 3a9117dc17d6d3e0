"""Turns existing files into a spec, and writes it with the line that names its schema."""

import json
import os
from argparse import Namespace
from importlib.resources import files
from pathlib import Path
from typing import Final

from tunec.compiler.cli.schema_command import schema
from tunec.compiler.cli.session import INPUT, OK, Misuse, Session
from tunec.compiler.cli.software_option import settled, software_of
from tunec.compiler.frontend.names import is_path
from tunec.compiler.lints.environment import Faulty, Unusable, environment_of
from tunec.compiler.lints.repository import not_one_run
from tunec.compiler.translate.bundles import open_bundle
from tunec.compiler.translate.foundation import SpecOptions
from tunec.compiler.translate.to_spec import Asking, SpecResult, spec_of_files
from tunec.compiler.translate.translate import BadSetting, given_slots
from tunec.compiler.writing import write_all


def run(paths: list[Path], options: Namespace, session: Session) -> int:
    """Write the spec if the files could be read; INPUT if something is left open."""
    output = None if options.output is None else Path(options.output)
    refuse_existing(output)
    bundle = open_bundle(paths, session.registry.readable())
    folder = next((each for each in paths if each.is_dir()), None)
    is_one_run = folder is None or (bundle is not None and bundle.root == folder)
    try:
        asking = asking_of(options, session, output)
        others = () if is_one_run or folder is None else (not_one_run(folder),)
        found = SpecResult(None, others, {}) if others else spec_of_files(paths, asking)
    except Faulty as faulty:
        found = SpecResult(None, faulty.diagnostics, faulty.sources)
    session.diagnose(found.diagnostics, found.sources)
    if session.format == "json":
        diagnostics = [each.to_json() for each in found.diagnostics]
        session.json({"spec": found.text, "diagnostics": diagnostics})
    if found.text is not None and output is not None:
        write_spec(output, found.text, session)
    elif found.text is not None and session.format != "json":
        session.result(found.text)
    return OK if found.ok else INPUT


def asking_of(options: Namespace, session: Session, output: Path | None) -> Asking:
    """The command line's settings for a spec; Faulty if a hardware or model file is wrong."""
    readable = session.registry.readable()
    try:
        environment = environment_of(
            readable,
            hardware=options.hardware,
            model=options.model,
            world=getattr(options, "world_size", None),
            readers=getattr(options, "readers", ()),
            software=settled(software_of(getattr(options, "software", [])), readable),
            allow_outside=options.allow_outside,
        )
        given = given_slots(options.overrides)
    except (Unusable, BadSetting) as unusable:
        raise Misuse(str(unusable)) from None
    return Asking(
        environment=environment,
        targets=readable,
        known={name: readable[name] for name in session.registry.names()},
        resolve=session.registry.resolve,
        beside=SpecOptions(
            _from(output, options.model),
            _from(output, options.hardware),
            getattr(options, "method", None),
        ),
        given=given,
        without=frozenset(getattr(options, "without", ())),
        output=output,
        head=(modeline(output),),
    )


def _from(output: Path | None, name: str | None) -> str | None:
    """A name as the spec writes it; paths are relative to the spec's directory."""
    if name is None or output is None or name.startswith(("/", "~")) or not is_path(name, Path()):
        return name
    return Path(os.path.relpath(name, output.parent)).as_posix()


_SCHEMA: Final = "spec.schema.json"
"""The name of the schema's file, beside a written spec."""


def modeline(output: Path | None) -> str:
    """The first line of a spec, which points editors to its schema.

    The schema is the file beside a written spec. On stdout there is no such file, so the line
    points to the schema of this installation.
    """
    return f"yaml-language-server: $schema={_installed() if output is None else _SCHEMA}"


def _installed() -> str:
    return Path(str(files("tunec.schemas") / "json" / "tunec" / "spec.json")).as_uri()


def refuse_existing(output: Path | None) -> None:
    """Raise Misuse if the spec exists already: what people have written stays."""
    if output is not None and output.exists():
        raise Misuse(f"{output} already exists")


def write_spec(output: Path, text: str, session: Session) -> None:
    """Write a spec, and the schema that editors use for completion."""
    known = json.dumps(schema("spec", session.registry.names()), indent=2, ensure_ascii=False)
    beside = output.parent / _SCHEMA
    write_all({output: text, beside: known + "\n"})
    session.note(f"written: {output}, {beside}; next: tunec plan {output}")
