"""`tunec compile`: write the files of the requested targets, all or none."""

import shlex
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

from tunec.compiler.bundle import LAUNCH, Outset, outset
from tunec.compiler.cli.delivery import Files, deliver, to_json
from tunec.compiler.cli.inputs import asked_targets, judged, load
from tunec.compiler.cli.session import OK, Misuse, Session, exit_code
from tunec.compiler.cli.smoke_bundle import IMPOSSIBLE, SMOKE, smoke_of
from tunec.compiler.driver import Compiled, compile_spec
from tunec.compiler.frontend.load import Loaded
from tunec.compiler.target import Artifact
from tunec.schemas.frozen import replace


def run(options: Namespace, session: Session) -> int:
    """Compile every spec; write nothing if any of them has an error."""
    if options.smoke and options.output is None:
        raise Misuse("--smoke writes a bundle beside the bundle: give a directory with -o")
    if options.check and options.output is None:
        raise Misuse("--check compares with a directory: name the directory with -o")
    results = [
        _compile(spec, on, options, session)
        for spec in options.specs
        for on in _each_hardware(options)
    ]
    _same_places(results, options)
    files = _layout(results, options)
    short = _short(results, options, session) if options.smoke else []
    files |= _layout(short, options, SMOKE)
    if session.format == "json":
        session.json(_json(results))
    every = [*results, *short]
    said = [each for result in every for each in result.diagnostics]
    if not all(result.ok for result in every):
        return exit_code(said, fine=False)
    delivered = deliver(files, options, session, are_bundled=True)
    if options.output is not None and not options.check:
        _show_commands(results, options, session)
        _tell_short(short, options, session)
    return exit_code(said, fine=delivered == OK)


def _show_commands(results: list[Compiled], options: Namespace, session: Session) -> None:
    """Print the commands that install and start the bundles."""
    for result in results:
        root = Path(options.output, _place(result.planned.loaded, options))
        if result.packages is not None:
            python = result.packages.values["python"]
            on = f" on Python {python}" if python else ""
            session.note(f"install what it imports{on}: {_installing(root, result.packages)}")
        if result.run is not None:
            entry = (root / result.run.name).as_posix()
            session.note(f"start it with: bash {shlex.quote(entry)}")


def _tell_short(results: list[Compiled], options: Namespace, session: Session) -> None:
    """Print the commands that run the short bundles first, and evaluate them."""
    for result in results:
        root = Path(options.output, _place(result.planned.loaded, options), SMOKE)
        place = shlex.quote(root.as_posix())
        session.note(
            f"before that, run the short one: bash {place}/run.sh && tunec calibrate {place}"
        )


def _installing(root: Path, packages: Artifact) -> str:
    """The command that installs a bundle's packages, or the file that lists several."""
    path = shlex.quote((root / packages.name).as_posix())
    (_, *more) = packages.values["commands"]
    return f"the commands are in {path}" if more else f"pip install -r {path}"


def _each_hardware(options: Namespace) -> list[Namespace]:
    """The options for each named hardware, or for the spec's own if none is named."""
    every = options.hardware or [None]
    return [Namespace(**{**vars(options), "hardware": each}) for each in every]


def _compile(spec: str, on: Namespace, options: Namespace, session: Session) -> Compiled:
    """Compile a spec on one hardware, with the options `on`; as a bundle if `-o` is given."""
    loaded = load(spec, on, session)
    asked = asked_targets(options.targets, loaded, session)
    if not asked and loaded.spec is not None:
        known = ", ".join(session.registry.names())
        raise Misuse(f"no target: give --target, or `targets:` in the spec; there are {known}")
    result = compile_spec(loaded, asked, _outset(loaded, options, session))
    found, sources = judged(result.planned, options)
    result = replace(result, diagnostics=(*result.diagnostics, *found))
    session.diagnose(result.diagnostics, {**loaded.sources, **sources})
    return result


def _short(results: list[Compiled], options: Namespace, session: Session) -> list[Compiled]:
    """The short bundle of each result; only its errors are reported."""
    made = []
    for result in results:
        if not result.ok:
            continue
        loaded = result.planned.loaded
        asked = asked_targets(options.targets, loaded, session)
        found = smoke_of(loaded, result, asked, _outset(loaded, options, session, SMOKE))
        if found is None:
            raise Misuse(IMPOSSIBLE)
        errors = tuple(each for each in found.diagnostics if each.severity == "error")
        session.diagnose(errors, found.planned.loaded.sources)
        made.append(replace(found, diagnostics=errors))
    return made


def _outset(loaded: Loaded, options: Namespace, session: Session, below: str = "") -> Outset | None:
    if options.output is None:
        return None
    root = Path(options.output, _place(loaded, options), below)
    return outset(loaded, root, session.registry.resolve(LAUNCH, loaded.software))


def _place(loaded: Loaded, options: Namespace) -> Path:
    """The directory of a result below the output directory: the parts that distinguish results."""
    several, many = len(options.specs) > 1, len(options.hardware) > 1
    return Path(_name(loaded) if several else "", _cluster(loaded) if many else "")


def _name(loaded: Loaded) -> str:
    return loaded.spec.name if loaded.spec else ""


def _cluster(loaded: Loaded) -> str:
    return loaded.cluster.name if loaded.cluster else ""


def _same_places(results: list[Compiled], options: Namespace) -> None:
    """Raise Misuse if files of two results would go to one directory."""
    each = max(len(options.hardware), 1)
    machine = _twice(_cluster(one.planned.loaded) for one in results[:each] if one.ok)
    if machine is not None and options.hardware:
        raise Misuse(f"--hardware names {machine!r} twice")
    name = _twice(_name(one.planned.loaded) for one in results[::each] if one.ok)
    if name is not None:
        raise Misuse(f"two specs are called {name!r}; give each a `name:` of its own")


def _twice(names: Iterable[str]) -> str | None:
    every = list(names)
    return next((each for each in every if every.count(each) > 1), None)


def _layout(results: list[Compiled], options: Namespace, below: str = "") -> Files:
    """The path of each file below the output directory."""
    return {
        _place(result.planned.loaded, options) / below / path: text
        for result in results
        for path, text in result.texts().items()
    }


def _json(results: list[Compiled]) -> dict[str, object]:
    return {
        "artifacts": [
            {**_names(result), **to_json(target, artifact)}
            for result in results
            for target, artifacts in result.artifacts.items()
            for artifact in artifacts
        ]
        + [
            {**_names(result), **to_json("", each)}
            for result in results
            for each in (result.run, result.packages)
            if each
        ],
        "diagnostics": [each.to_json() for r in results for each in r.diagnostics],
    }


def _names(result: Compiled) -> dict[str, object]:
    loaded = result.planned.loaded
    return {"spec": _name(loaded), "hardware": _cluster(loaded)}
