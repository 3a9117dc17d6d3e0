"""`tunec compile`: write the files of the asked targets, all or none."""

from argparse import Namespace
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from tunec.compiler.cli.delivery import Files, deliver, to_json
from tunec.compiler.cli.inputs import asked_targets, judged, load
from tunec.compiler.cli.session import INPUT, Misuse, Session
from tunec.compiler.driver import Compiled, compile_spec


def run(options: Namespace, session: Session) -> int:
    """Compile every spec; write nothing unless all of them are fine."""
    if options.check and options.output is None:
        raise Misuse("--check compares with a directory: give it with -o")
    results = [
        _compile(spec, on, session) for spec in options.specs for on in _each_hardware(options)
    ]
    _same_places(results, options)
    files = _layout(results, options)
    if session.format == "json":
        session.json(_json(results))
    if not all(result.ok for result in results):
        return INPUT
    return deliver(files, options, session)


def _each_hardware(options: Namespace) -> list[Namespace]:
    """The options for each named hardware; for the spec's own where none is named."""
    every = options.hardware or [None]
    return [Namespace(**{**vars(options), "hardware": each}) for each in every]


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


def _cluster(result: Compiled) -> str:
    cluster = result.planned.loaded.cluster
    return cluster.name if cluster else ""


def _same_places(results: list[Compiled], options: Namespace) -> None:
    """Misuse where files of two results would lie in one directory."""
    each = max(len(options.hardware), 1)
    machine = _twice(_cluster(one) for one in results[:each] if one.ok)
    if machine is not None and options.hardware:
        raise Misuse(f"--hardware names {machine!r} twice")
    name = _twice(_name(one) for one in results[::each] if one.ok)
    if name is not None:
        raise Misuse(f"two specs are called {name!r}; give each a `name:` of its own")


def _twice(names: Iterable[str]) -> str | None:
    every = list(names)
    return next((each for each in every if every.count(each) > 1), None)


def _layout(results: list[Compiled], options: Namespace) -> Files:
    """Path of each file below the output directory, with what tells the results apart."""
    several, many = len(options.specs) > 1, len(options.hardware) > 1
    return {
        Path(
            _name(result) if several else "",
            _cluster(result) if many else "",
            target,
            artifact.name,
        ): artifact.text
        for result in results
        for target, artifacts in result.artifacts.items()
        for artifact in artifacts
    }


def _json(results: list[Compiled]) -> dict[str, object]:
    return {
        "artifacts": [
            {"spec": _name(result), "hardware": _cluster(result), **to_json(target, artifact)}
            for result in results
            for target, artifacts in result.artifacts.items()
            for artifact in artifacts
        ],
        "diagnostics": [each.to_json() for r in results for each in r.diagnostics],
    }
