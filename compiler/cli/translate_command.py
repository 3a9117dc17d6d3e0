"""`tunec translate`: existing configs as files of other targets, all or none."""

from argparse import Namespace
from pathlib import Path
from typing import Final

from tunec.compiler.cli.delivery import Files, deliver, to_json
from tunec.compiler.cli.session import OK, Misuse, Session, exit_code
from tunec.compiler.cli.software_option import settled, software_of
from tunec.compiler.lints.environment import Faulty, Unusable, environment_of
from tunec.compiler.lints.repository import not_one_run
from tunec.compiler.requirements import Asked
from tunec.compiler.translate.translate import BadSetting, Translated, given_slots, translate_files

_SPEC: Final = "spec"
"""The name of a spec among targets."""


def run(options: Namespace, session: Session) -> int:
    """Translate; write nothing unless the new files describe the same run."""
    if not options.targets:
        known = ", ".join(session.registry.names())
        raise Misuse(f"no target: name one with --to: spec, {known}")
    if _SPEC in options.targets:
        return _to_spec(options, session)
    if options.check and options.output is None:
        raise Misuse("--check compares with a directory: name the directory with -o")
    result = _translate(options, session)
    session.diagnose(result.diagnostics, result.sources)
    if session.format == "json":
        session.json(_json(result))
    fine = result.ok and deliver(_layout(result), options, session) == OK
    return exit_code(result.diagnostics, fine=fine)


def _to_spec(options: Namespace, session: Session) -> int:
    """Write the files as a spec, which is not a target but compiles to several."""
    from tunec.compiler.cli import spec_from_files

    if len(options.targets) > 1:
        raise Misuse(
            f"--to {_SPEC} cannot be combined with other targets: the spec itself names its targets"
        )
    if options.check:
        raise Misuse(
            "--check is for files that tunec regenerates, not for a spec, which is yours to edit"
        )
    return spec_from_files.run([Path(each) for each in options.files], options, session)


def _translate(options: Namespace, session: Session) -> Translated:
    targets = session.registry.readable()
    software = settled(software_of(options.software), targets)
    try:
        environment = environment_of(
            targets,
            hardware=options.hardware,
            model=options.model,
            world=options.world_size,
            readers=options.readers,
            software=software,
            allow_outside=options.allow_outside,
        )
        given = given_slots(options.overrides)
    except (Unusable, BadSetting) as unusable:
        raise Misuse(str(unusable)) from None
    except Faulty as faulty:
        return Translated({}, faulty.diagnostics, faulty.sources)
    asked = tuple(_dialect(name, software, session) for name in options.targets)
    names = [target.name for target, _ in asked]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise Misuse(f"--to names {twice} twice: its files would have the same names")
    paths = [Path(each) for each in options.files]
    folder = next((each for each in paths if each.is_dir()), None)
    if folder is not None:
        return Translated({}, (not_one_run(folder),))
    return translate_files(paths, asked, targets, environment, given=given, without=options.without)


def _dialect(name: str, software: dict[str, str], session: Session) -> Asked:
    try:
        return session.registry.resolve(name, software)
    except LookupError as unknown:
        raise Misuse(str(unknown.args[0])) from None


def _layout(result: Translated) -> Files:
    return {
        Path(target, artifact.name): artifact.text
        for target, artifacts in result.artifacts.items()
        for artifact in artifacts
    }


def _json(result: Translated) -> dict[str, object]:
    return {
        "artifacts": [
            to_json(target, artifact)
            for target, artifacts in result.artifacts.items()
            for artifact in artifacts
        ],
        "diagnostics": [each.to_json() for each in result.diagnostics],
    }
