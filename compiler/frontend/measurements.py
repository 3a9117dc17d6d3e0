"""Measurements of a cluster's runs: the file beside its own, or beside a spec that names it."""

from pathlib import Path
from typing import Final

from msgspec import Struct

from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.disk import Unreadable, read_bytes
from tunec.compiler.frontend.faults import error
from tunec.schemas.hardware.profile import Cluster
from tunec.schemas.source import start_of

SUFFIX: Final = ".measured.yaml"
"""Suffix of the file beside `NAME.yaml`; for a cluster of the catalogue, beside the spec."""


class MeasuredCluster(Struct, frozen=True):
    """A cluster with its measurements, if there is a file of them."""

    cluster: Cluster
    path: Path | None = None
    content: bytes = b""
    faults: tuple[Diagnostic, ...] = ()


def path_beside(cluster: str, base: Path, file: Path | None = None) -> Path:
    """The path of a cluster's measurements: beside its file, or in a directory by its name."""
    return base / f"{cluster}{SUFFIX}" if file is None else file.with_name(file.stem + SUFFIX)


def with_measured(cluster: Cluster, base: Path, file: Path | None = None) -> MeasuredCluster:
    """Read the measurements of a cluster, if there are any; a faulty file changes nothing."""
    path = path_beside(cluster.name, base, file)
    try:
        if not path.is_file():
            return MeasuredCluster(cluster)
        content = read_bytes(path)
    except (Unreadable, OSError, ValueError):
        return MeasuredCluster(cluster)
    return _read(cluster, path, content)


def _read(cluster: Cluster, path: Path, content: bytes) -> MeasuredCluster:
    from tunec.compiler.frontend.files import format_of
    from tunec.compiler.frontend.nodes import plain
    from tunec.compiler.frontend.parse import parse
    from tunec.compiler.frontend.validation import typed
    from tunec.schemas.hardware.measurements import Measured

    node, faults = parse(content, str(path), format_of(path))
    if node is None:
        return MeasuredCluster(cluster, path, content, faults)
    found = typed(Measured, plain(node), node)
    faults = (*faults, *found.faults)
    if found.value is not None and found.value.cluster != cluster.name:
        faults = (*faults, _of_another(cluster.name, found.value.cluster, path))
    if faults or found.value is None:
        return MeasuredCluster(cluster, path, content, faults)
    return MeasuredCluster(cluster.calibrated(found.value), path, content)


def _of_another(name: str, other: str, path: Path) -> Diagnostic:
    return error(
        "E0305",
        f"`{path.name}` was measured on `{other}`, and the cluster is `{name}`",
        start_of(str(path)),
        help="move the file beside the cluster that it is of, or calibrate this one: "
        "`tunec calibrate SPEC RUN`",
    )
