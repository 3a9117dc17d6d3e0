"""Names in a spec that refer to something: models, hardware, devices."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from tunec.compiler.derived_cards import (
    config_in,
    decoded,
    hub_config,
    hub_folder,
    pipeline_index,
    with_pipeline_class,
)
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.diagnostics.wording import did_you_mean, shortened
from tunec.compiler.frontend.disk import Unreadable, near_files
from tunec.compiler.frontend.faults import error
from tunec.compiler.frontend.files import format_of
from tunec.compiler.frontend.measurements import with_measured
from tunec.compiler.frontend.model_names import is_known_model, unknown_model
from tunec.compiler.frontend.nodes import Node, descend, place, plain
from tunec.compiler.frontend.parse import Format, parse
from tunec.compiler.frontend.project import Outside, Project, lies_outside
from tunec.compiler.frontend.software import check_software
from tunec.compiler.frontend.validation import typed
from tunec.schemas.caches import cached
from tunec.schemas.hardware.profile import Cluster
from tunec.schemas.models.published_form import published_in
from tunec.schemas.source import Path as Place
from tunec.schemas.source import Span

if TYPE_CHECKING:
    from tunec.schemas.hardware.catalogue import UnknownName


class File(Struct, frozen=True):
    """A file that a name refers to, as it was read."""

    path: Path
    content: bytes

    @property
    def source(self) -> tuple[str, str]:
        """The name that spans use, and the text."""
        return str(self.path), self.content.decode("utf-8", errors="replace")


class ResolvedName(Struct, frozen=True):
    """The result of following a name."""

    faults: tuple[Diagnostic, ...] = ()
    files: tuple[File, ...] = ()
    cluster: Cluster | None = None
    config: Mapping[str, Any] | None = None
    """A model's config, if the name is the path of one."""


def is_path(name: str, base: Path) -> bool:
    """Whether a name means a file or directory rather than a catalogue entry."""
    if not name:
        return False
    if is_written_as_path(name):
        return True
    try:
        if not os.path.isdir(os.path.join(base, name)):  # noqa: PTH112, PTH118  in every plan
            return False
        return config_in(base / name) is not None or not _is_catalogued(name)
    except (OSError, ValueError):
        return False


def _is_catalogued(name: str) -> bool:
    """Whether a folder without a config may only have the name of a model or a cluster.

    That of what was compiled for it has, for example.
    """
    from tunec.schemas.hardware.catalogue import UnknownName, cluster

    try:
        return is_known_model(name) or bool(cluster(name))
    except UnknownName:
        return False


def is_written_as_path(name: str) -> bool:
    """Whether a name cannot be a catalogue entry, whatever is on the disk."""
    return name.startswith((".", "/", "~")) or name.endswith((".json", ".yaml", ".yml"))


# ── models ───────────────────────────────────────────────────────────────────────────────────────


def check_model(value: Any, tree: Node, project: Project) -> ResolvedName:
    """Follow `model`: a catalogue name, a path, or the `config` of inline facts."""
    if isinstance(value, Mapping):
        config = value.get("config")
        here = Place(("model", "config"))
        return (
            _config_file(config, tree, here, project) if isinstance(config, str) else ResolvedName()
        )
    if not isinstance(value, str):
        return ResolvedName()
    if is_path(value, project.base):
        return _config_file(value, tree, ("model",), project)
    unknown = tuple(unknown_model(value, place(descend(tree, ("model",))[0])))
    cached = hub_config(value) if unknown else None
    if cached is None:
        return ResolvedName(unknown)
    root = hub_folder(value).resolve()
    return _config_file(str(cached), tree, ("model",), Project(project.base, root))


def check_stored(data: Mapping[str, Any], model: ResolvedName, tree: Node) -> Iterator[Diagnostic]:
    """Check that the weights that a config describes suit the method.

    A checkpoint's own quantization overrules the one requested on loading (transformers 5.23.0
    quantizers/auto.py `AutoHfQuantizer.merge_quantization_configs`).
    """
    given = data.get("model")
    inline = given.get("config") if isinstance(given, Mapping) else None
    config = model.config or (inline if isinstance(inline, Mapping) else {})
    stored = config.get("quantization_config")
    if not isinstance(stored, Mapping) or published_in(config) != "none":
        return
    by, method = shortened(str(stored.get("quant_method", "bitsandbytes"))), data.get("method")
    four_bit = stored.get("load_in_4bit") or stored.get("_load_in_4bit")
    fitting = {"bitsandbytes": "qlora" if four_bit else "int8_lora"}.get(by)
    if fitting is not None and (method == fitting or _is_keyed(method, fitting)):
        return
    before = "give the config of the original model"
    yield error(
        "E0312",
        f"the model's weights are stored quantised by {by}",
        _at(tree, ("model",)),
        path=("model",),
        notes=("its config says so, and the loader follows it, whatever the method is",),
        help=f"{before}, or ask for `method: {fitting}`" if fitting else before,
    )


def _is_keyed(value: Any, key: str) -> bool:
    return isinstance(value, Mapping) and key in value


def _config_file(name: str, tree: Node, at: Place, project: Project) -> ResolvedName:
    path, folder = project.base / name, None
    try:
        folder = path if path.is_dir() else None
        path = (config_in(folder) or folder / "config.json") if folder else path
        content = project.read(path, _at(tree, at))
    except Outside as fault:
        return ResolvedName((lies_outside(name, fault, _at(tree, at), at),))
    except (Unreadable, OSError, ValueError) as fault:
        if folder is not None:
            return ResolvedName((_no_config(name, folder, fault, tree, at),))
        return ResolvedName((_unreadable(name, path, fault, tree, at),))
    config, faults = _config(content, str(path), _format_of_config(path))
    if not faults and not isinstance(config, dict):
        message = f"`{shortened(name)}` is not a model's config: it does not hold a mapping"
        config, faults = None, (error("E0305", message, _at(tree, at), path=at),)
    read = File(path, content)
    if config is None:
        return ResolvedName(faults, (read,))
    index = _index_of(path, _at(tree, at), project)
    known = _config(index.content, str(index.path), "json")[0] if index else None
    files = (read, index) if index else (read,)
    return ResolvedName(faults, files, config=with_pipeline_class(config, known))


def _index_of(config: Path, named: Span, project: Project) -> File | None:
    """The file that describes the pipeline of a denoiser; None if there is none to read."""
    index = pipeline_index(config)
    try:
        return None if index is None else File(index, project.read(index, named))
    except (Outside, Unreadable, OSError):
        return None


@cached(16)
def _config(content: bytes, file: str, format: Format) -> tuple[Any, tuple[Diagnostic, ...]]:
    """The content of a file, None if it has faults; cached, as a repair reads it often."""
    node, faults = parse(content, file, format)
    return (decoded(plain(node)) if node is not None and not faults else None), faults


def _no_config(name: str, folder: Path, fault: Exception, tree: Node, at: Place) -> Diagnostic:
    return error(
        "E0305",
        f"cannot read `config.json` in `{shortened(name)}`: {fault}",
        _at(tree, at),
        path=at,
        notes=("the name is a directory, relative to the spec's",),
        help=near_files(folder / "config.json"),
    )


def _format_of_config(path: Path) -> Format:
    return "yaml" if path.suffix.lower() in (".yaml", ".yml") else "json"


def _unreadable(name: str, path: Path, fault: Exception, tree: Node, at: Place) -> Diagnostic:
    why = str(fault) if isinstance(fault, Unreadable) else "no such name"
    return error(
        "E0305",
        f"cannot read `{shortened(name)}`: {why}",
        _at(tree, at),
        path=at,
        notes=("the name is a path, relative to the spec's directory",),
        help=near_files(path),
    )


# ── hardware ─────────────────────────────────────────────────────────────────────────────────────


def check_hardware(value: Any, tree: Node, project: Project) -> ResolvedName:
    """Follow `hardware`: a catalogue name, a path, or an inline cluster's device names."""
    if isinstance(value, Mapping):
        return ResolvedName(tuple(_faults_of_cluster(value, tree, ("hardware",))))
    if not isinstance(value, str):
        return ResolvedName()
    if is_path(value, project.base):
        return _cluster_file(value, tree, project)
    return _catalogue_cluster(value, tree, project)


def _catalogue_cluster(name: str, tree: Node, project: Project) -> ResolvedName:
    from tunec.schemas.hardware.catalogue import UnknownName, cluster

    try:
        return _measured(ResolvedName(cluster=cluster(name)), project)
    except UnknownName as unknown:
        span = _at(tree, ("hardware",))
        if unknown.uncounted is not None:
            return ResolvedName((_uncounted(name, unknown.near, span),))
        return ResolvedName((_unknown_hardware(name, unknown, span),))


_SIZE: Final = re.compile(r"(\d+)gi?b?\b")
"""The memory in a device's name, as in `rtx-3050-6g` and in `1g.10gb` of an A100."""
_NO_HARDWARE_NEAR: Final = (
    "`tunec catalog clusters` and `devices` list the known ones, and `tunec probe -o here.yaml` "
    "writes the file of the machine on which it runs"
)


def _unknown_hardware(name: str, unknown: "UnknownName", span: Span) -> Diagnostic:
    from tunec.schemas.hardware.catalogue import as_another, no_account_of, unsupported

    what = unsupported(name)
    if what is not None:
        return _unsupported(name, no_account_of(what), span, ("hardware",))
    notes = ["it is a cluster's name, or `<device>-x<devices>[-n<nodes>]`, or a file"]
    if unknown.device is not None:
        sizes = _SIZE.findall(name.lower())
        written = as_another(unknown.device, f"{sizes[-1] if sizes else 12}GiB")
        notes.append(
            "a device that is not known is planned as one that is, with its own memory, by a file "
            f"with `{written}`"
        )
    return error(
        "E0305",
        f"no hardware is called `{shortened(name)}`",
        span,
        label="not in the catalogue",
        path=("hardware",),
        notes=tuple(notes),
        help=did_you_mean(unknown.near) or _NO_HARDWARE_NEAR,
    )


def _uncounted(name: str, near: tuple[str, ...], span: Span) -> Diagnostic:
    one, many = near
    return error(
        "E0305",
        f"`{shortened(name)}` is a device, and `hardware` does not say how many of them",
        span,
        label="how many?",
        path=("hardware",),
        help=f"write `{one}` for one of them, `{many}` for eight",
    )


def _unsupported(name: str, why: str, span: Span, path: Place) -> Diagnostic:
    return error(
        "E0305",
        f"`{shortened(name)}` is not supported",
        span,
        label="no plan is made for it",
        path=path,
        notes=(why,),
        help="`tunec catalog clusters` and `devices` list what is supported",
    )


def _cluster_file(name: str, tree: Node, project: Project) -> ResolvedName:
    path, at = project.base / name, ("hardware",)
    try:
        content = project.read(path, _at(tree, at))
    except Outside as fault:
        return ResolvedName((lies_outside(name, fault, _at(tree, at), at),))
    except Unreadable as fault:
        return ResolvedName((_unreadable(name, path, fault, tree, at),))
    node, faults = parse(content, str(path), format_of(path))
    files = (File(path, content),)
    if node is None:
        return ResolvedName(faults, files)
    data = plain(node)
    found = typed(Cluster, data, node)
    names = tuple(_faults_of_cluster(data, node, ())) if isinstance(data, Mapping) else ()
    every = (*faults, *found.faults, *names)
    return _measured(ResolvedName(every, files, None if every else found.value), project, path)


def _measured(named: ResolvedName, project: Project, file: Path | None = None) -> ResolvedName:
    """A cluster with the measurements of its runs, if a file beside it has them."""
    if named.cluster is None:
        return named
    found = with_measured(named.cluster, project.base, file)
    if found.path is None:
        return named
    files = (*named.files, File(found.path, found.content))
    return ResolvedName((*named.faults, *found.faults), files, found.cluster)


def _faults_of_cluster(data: Mapping[str, Any], tree: Node, base: Place) -> Iterator[Diagnostic]:
    yield from _unknown_devices(data, tree, base)
    yield from check_software(data.get("software"), tree, base)


def _unknown_devices(data: Mapping[str, Any], tree: Node, base: Place) -> Iterator[Diagnostic]:
    from tunec.schemas.hardware.catalogue import UnknownName, device, no_account_of, unsupported

    for path, name in _device_names(data):
        try:
            device(name)
        except UnknownName as unknown:
            what = unsupported(name)
            if what is not None:
                at = (*base, *path)
                yield _unsupported(name, no_account_of(what), _at(tree, at), at)
                continue
            yield error(
                "E0305",
                f"no device is called `{shortened(name)}`",
                _at(tree, (*base, *path)),
                label="not in the catalogue",
                path=(*base, *path),
                help=did_you_mean(unknown.near) or "`tunec catalog devices` lists them",
            )


def _device_names(data: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    for n, node in _items(data.get("nodes")):
        for a, group in _items(node.get("accelerators")):
            if isinstance(group.get("device"), str):
                yield ("nodes", n, "accelerators", a, "device"), group["device"]


def _items(value: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if isinstance(value, list):
        yield from ((at, each) for at, each in enumerate(value) if isinstance(each, Mapping))


def _at(tree: Node, path: Place) -> Span:
    return place(descend(tree, path)[0])
