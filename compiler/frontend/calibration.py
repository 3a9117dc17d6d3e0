"""A stored trace of a model: the file that a spec names, or the one beside the model's config."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from tunec.compiler.analyses.memory.calibration import (
    FILE,
    Calibration,
    Unusable,
    calibration_of,
    config_digest,
)
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.disk import Unreadable, near_files
from tunec.compiler.frontend.faults import error
from tunec.compiler.frontend.names import File, ResolvedName
from tunec.compiler.frontend.nodes import Node, descend, place
from tunec.compiler.frontend.project import Outside, Project, lies_outside
from tunec.schemas.source import Path as Place


class FoundCalibration(Struct, frozen=True):
    """A calibration that was found; all fields are empty if there is none."""

    calibration: Calibration | None = None
    files: tuple[File, ...] = ()
    faults: tuple[Diagnostic, ...] = ()


def check_calibration(
    data: Mapping[str, Any], model: ResolvedName, tree: Node, project: Project
) -> FoundCalibration:
    """Read the calibration of a spec, and check that it is one, of the spec's own model."""
    named = data.get("calibration")
    if isinstance(named, str):
        return _read(project, named, data, model, tree, ("calibration",))
    if named is not None or not model.files:
        return FoundCalibration()
    folder = model.files[0].path.parent
    if not (folder / FILE).is_file():
        return FoundCalibration()
    return _read(Project(folder, folder.resolve()), FILE, data, model, tree, ("model",))


def _read(
    project: Project, name: str, data: Mapping[str, Any], model: ResolvedName, tree: Node, at: Place
) -> FoundCalibration:
    path, span = project.base / name, place(descend(tree, at)[0])
    try:
        content = project.read(path, span)
        found = calibration_of(json.loads(content), name)
    except Outside as fault:
        return FoundCalibration(faults=(lies_outside(name, fault, span, at),))
    except (Unreadable, OSError) as fault:
        return FoundCalibration(faults=(_fault(f"cannot read `{name}`: {fault}", path, tree, at),))
    except (Unusable, ValueError, RecursionError) as fault:
        return FoundCalibration(
            faults=(_fault(f"`{name}` cannot be used: {fault}", path, tree, at),)
        )
    files = (File(path, content),)
    config = _config(data.get("model"), model)
    if config is not None and config_digest(config) != found.config:
        words = f"`{name}` was traced from a model with another config"
        return FoundCalibration(files=files, faults=(_fault(words, path, tree, at),))
    return FoundCalibration(found, files)


def _config(given: Any, model: ResolvedName) -> Mapping[str, Any] | None:
    """The config of the spec's model; None if there is none, which is reported elsewhere."""
    if model.config is not None:
        return model.config
    if isinstance(given, Mapping):
        inline = given.get("config")
        return inline if isinstance(inline, Mapping) else None
    if not isinstance(given, str) or model.faults:
        return None
    from tunec.schemas.models.catalogue import card

    found: Mapping[str, Any] = card(given).config
    return found


def _fault(message: str, path: Path, tree: Node, at: Place) -> Diagnostic:
    return error(
        "E0305",
        message,
        place(descend(tree, at)[0]),
        path=at,
        help=near_files(path) or f"record it again: `tunec trace SPEC --save {path.name}`",
    )
