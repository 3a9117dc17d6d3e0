"""`tunec compile`: write the files of the asked targets, all or none."""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from tunec.compiler.cli.files import differing, write_all
from tunec.compiler.cli.inputs import asked_targets, judged, load
from tunec.compiler.cli.session import INPUT, OK, Misuse, Session
from tunec.compiler.driver import Compiled, compile_spec
from tunec.compiler.ir.show import plain

Files = dict[Path, str]


def run(options: Namespace, session: Session) -> int:
    """Compile every spec; write nothing unless all of them are fine."""
    if options.check and options.output is None:
        raise Misuse("--check compares with a directory: give it with -o")
    results = [_compile(spec, options, session) for spec in options.specs]
    _same_names(results)
    files = _layout(results)
    if session.format == "json":
        session.json(_json(results))
    if not all(result.ok for result in results):
        return INPUT
    return _deliver(files, options, session)


def _compile(spec: str, options: Namespace, session: Session) -> Compiled:
    loaded = load(spec, options, session)
    asked = asked_targets(options.targets, loaded, session)
    if not asked and loaded.spec is not None:
        known = ", ".join(session.registry.names())
        raise Misuse(f"no target: give --target, or `targets:` in the spec; there are {known}")
    result = compile_spec(loaded, asked)
    found, sources = judged(result.planned, options)
    result = replace(result, diagnostics=(*result.diagnostics, *found))
    session.diagnose(result.diagnostics, {**loaded.sources, **sources})
    return result


def _name(result: Compiled) -> str:
    spec = result.planned.loaded.spec
    return spec.name if spec else ""


def _same_names(results: list[Compiled]) -> None:
    names = [_name(result) for result in results if result.ok]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise Misuse(f"two specs are called {twice.pop()!r}; give each a `name:` of its own")


def _layout(results: list[Compiled]) -> Files:
    """Path of each file below the output directory."""
    return {
        Path(_name(result) if len(results) > 1 else "", target, artifact.name): artifact.text
        for result in results
        for target, artifacts in result.artifacts.items()
        for artifact in artifacts
    }


def _deliver(files: Files, options: Namespace, session: Session) -> int:
    if options.output is None:
        return _to_stdout(files, session)
    below = {Path(options.output) / path: text for path, text in files.items()}
    if options.check:
        return _check(below, session)
    for path in write_all(below):
        session.note(f"wrote {path}")
    return OK


def _to_stdout(files: Files, session: Session) -> int:
    if session.format == "json":
        return OK
    if len(files) != 1:
        names = ", ".join(path.as_posix() for path in files)
        raise Misuse(f"there are {len(files)} files ({names}): give a directory with -o")
    session.result(next(iter(files.values())))
    return OK


def _check(files: Files, session: Session) -> int:
    stale = differing(files)
    for path, what in stale.items():
        session.note(f"{path}: {what}")
    return INPUT if stale else OK


def _json(results: list[Compiled]) -> dict[str, object]:
    return {
        "artifacts": [
            {
                "spec": _name(result),
                "target": target,
                "file": artifact.name,
                "text": artifact.text,
                "values": plain(artifact.values),
            }
            for result in results
            for target, artifacts in result.artifacts.items()
            for artifact in artifacts
        ],
        "diagnostics": [each.to_json() for r in results for each in r.diagnostics],
    }
