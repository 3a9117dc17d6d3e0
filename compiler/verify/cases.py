"""Turns specs and directories into the cases that are handed to programs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tunec.compiler.driver import Compiled
from tunec.compiler.facts import Facts
from tunec.compiler.requirements import Asked
from tunec.compiler.target import Target
from tunec.compiler.verify.bundles import bare, bare_values
from tunec.compiler.verify.contract import Case, Delivered
from tunec.schemas.frozen import replace

_SPEC: Final = re.compile(r'^\s*"?(?:tunec|extends)"?\s*:', re.MULTILINE)
_SUFFIXES: Final = (".yaml", ".yml", ".json")


def rounds(asked: Sequence[Asked]) -> list[tuple[Asked, ...]]:
    """Combinations with one version of each target, so that each plan is for one version of each.

    The first round has the first version of each target; a target with fewer versions than others
    repeats its last one.
    """
    versions: dict[str, list[Asked]] = {}
    for each in asked:
        versions.setdefault(each[0].name, []).append(each)
    most = max((len(held) for held in versions.values()), default=0)
    return [tuple(held[min(at, len(held) - 1)] for held in versions.values()) for at in range(most)]


def cases_of(compiled: Compiled, asked: Sequence[Asked], folder: Path | None = None) -> list[Case]:
    """A case for each target of a compiled spec, with its emitted files, or those in `folder`."""
    facts, plan = compiled.planned.facts, compiled.planned.plan
    spec = compiled.planned.loaded.spec
    if facts is None or plan is None or spec is None:
        return []
    return [
        Case(
            spec=spec.name,
            target=target,
            version=version,
            software=facts.versions,
            plan=compiled.plans.get(target.name, plan),
            architecture=facts.model.architecture,
            config=_config(facts),
            delivered=_delivered(compiled, target, folder),
            expected={
                each.name: replace(each, values=bare_values(target, each))
                for each in compiled.artifacts[target.name]
            },
        )
        for target, version in asked
    ]


def _config(facts: Facts) -> Mapping[str, object] | None:
    """The catalogue's config.json, which holds the facts that define the modules."""
    return facts.model.card.config if facts.model.card is not None else None


def _delivered(compiled: Compiled, target: Target, folder: Path | None) -> dict[str, Delivered]:
    artifacts = compiled.artifacts[target.name]
    if folder is None:
        return {
            each.name: Delivered(each.name, f"{target.name}/{each.name}", each.text)
            for each in artifacts
        }
    paths = {each.name: folder / target.name / each.name for each in artifacts}
    return {
        each.name: Delivered(each.name, path.as_posix(), bare(target, each, _text(path)))
        for each in artifacts
        if (path := paths[each.name]).is_file()
    }


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def distinct(cases: Sequence[Case]) -> list[Case]:
    """The cases without duplicates: rounds may repeat a target with the same version and files."""
    found: dict[tuple[object, ...], Case] = {}
    for case in cases:
        texts = tuple((each.path, each.text) for each in case.delivered.values())
        decided = repr(sorted((slot, repr(value)) for slot, value in case.plan.values().items()))
        versions = str(sorted((k, str(v)) for k, v in case.dialect.items()))
        found.setdefault((case.spec, case.target.name, versions, texts, decided), case)
    return list(found.values())


# ── directories ──────────────────────────────────────────────────────────────────────────────────


def compiled_folder(folder: Path, name: str, targets: Sequence[str]) -> tuple[Path, list[str]]:
    """The folder below `folder` with the targets' folders for the spec `name`, and those targets.

    `tunec compile -o` writes DIR/TARGET/FILE, and DIR/SPEC/TARGET/FILE for several specs.
    """
    for place in (folder / name, folder):
        held = [target for target in targets if (place / target).is_dir()]
        if name and held:
            return place, held
    return folder, [target for target in targets if (folder / target).is_dir()]


def specs_in(folder: Path) -> Iterator[Path]:
    """The files directly in a directory that look like specs: they have `tunec:` or `extends:`."""
    for path in sorted(folder.iterdir()):
        document = path.suffix in _SUFFIXES and path.is_file()
        if document and _SPEC.search(path.read_text("utf-8", "replace")):
            yield path
