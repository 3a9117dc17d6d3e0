"""`tunec catalog`: the devices, clusters, models, data sets and targets that tunec knows."""

import re
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any

import yaml
from msgspec import to_builtins

from tunec.compiler.cli.session import OK, Misuse, Session
from tunec.compiler.diagnostics.codes import known_codes, page
from tunec.compiler.diagnostics.wording import did_you_mean, nearest
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.lints.index import rule_names, rule_page, rule_title
from tunec.compiler.passes.pipeline import PIPELINE
from tunec.schemas.datasets.catalogue import dataset, dataset_names
from tunec.schemas.hardware.catalogue import cluster, cluster_names, device, device_names
from tunec.schemas.hardware.profile import Cluster, Device
from tunec.schemas.models.catalogue import card, card_names
from tunec.schemas.units import format_bytes


def run(options: Namespace, session: Session) -> int:
    """List a kind, show one entry, or list the entries that contain a word."""
    known = kinds(session)
    if options.kind is None:
        return _kinds({name: tuple(names()) for name, (names, _) in known.items()}, session)
    if options.kind not in known:
        hint = did_you_mean(nearest(options.kind, known)) or f"there are {', '.join(known)}"
        raise Misuse(f"unknown kind {options.kind!r}; {hint}")
    names, entry = known[options.kind]
    if options.name is None:
        return _show(names(), session)
    try:
        found = entry(options.name)
    except LookupError as unknown:
        holding = _holding(options.name, names())
        if holding and session.format != "json":
            return _show(holding, session)
        near = getattr(unknown, "near", ()) or nearest(options.name, names())
        hint = did_you_mean(near) or f"`tunec catalog {options.kind}` lists them"
        what = f"there is no {options.kind.rstrip('s')} {options.name!r}"
        raise Misuse(f"{what}; {hint}") from None
    if session.format == "json":
        session.json(found)
    elif isinstance(found, str):
        session.result(found)
    else:
        session.result(yaml.safe_dump(found, sort_keys=False, allow_unicode=True, width=100))
    return OK


Kind = tuple[Callable[[], Mapping[str, str]], Callable[[str], Any]]


def kinds(session: Session) -> dict[str, Kind]:
    """The kinds that can be listed, and how one entry is shown."""
    registry = session.registry
    return {
        "devices": (_devices, lambda name: device(name).model_dump(mode="json")),
        "clusters": (_clusters, lambda name: cluster(name).model_dump(mode="json")),
        "models": (_models, lambda name: card(name).model_dump(mode="json")),
        "datasets": (_datasets, lambda name: to_builtins(dataset(name))),
        "targets": (lambda: _targets(session), lambda name: _target(registry.resolve(name)[0])),
        "slots": (lambda: {path: slot.doc for path, slot in SLOTS.items()}, _slot),
        "passes": (lambda: {each.name: each.contract for each in PIPELINE}, _pass),
        "codes": (lambda: {code: _title(code) for code in sorted(known_codes())}, page),
        "rules": (lambda: {name: rule_title(name) for name in rule_names()}, rule_page),
    }


def _kinds(every: Mapping[str, tuple[str, ...]], session: Session) -> int:
    """The number of entries of each kind; as JSON, their names."""
    if session.format == "json":
        session.json(every)
        return OK
    return _show({kind: f"{len(names)} entries" for kind, names in every.items()}, session)


def _show(rows: Mapping[str, str], session: Session) -> int:
    if session.format == "json":
        session.json(dict(rows))
        return OK
    width = max(map(len, rows), default=0)
    session.result("\n".join(f"{name:<{width}}  {text}".rstrip() for name, text in rows.items()))
    return OK


def _holding(word: str, rows: Mapping[str, str]) -> dict[str, str]:
    """The entries in whose name or text a word begins with this one."""
    begins = re.compile(rf"\b{re.escape(word)}", re.IGNORECASE)
    return {name: text for name, text in rows.items() if begins.search(f"{name} {text}")}


def _devices() -> dict[str, str]:
    """Memory, compute capability, title, and natively supported dtypes."""
    found = {name: device(name) for name in device_names()}
    wide = max(len(each.title) for each in found.values())
    return {name: _device(each, wide) for name, each in found.items()}


def _device(found: Device, wide: int) -> str:
    capability = ".".join(map(str, found.compute_capability or ()))
    native = ", ".join(dtype for dtype in found.precisions if found.supports(dtype))
    return f"{format_bytes(found.memory):>9}  {capability:>4}  {found.title:<{wide}}  {native}"


def _clusters() -> dict[str, str]:
    """The nodes with their devices, and the title."""
    found = {name: cluster(name) for name in cluster_names()}
    wide = max(len(_groups(each)) for each in found.values())
    return {name: f"{_groups(each):<{wide}}  {each.title}" for name, each in found.items()}


def _groups(found: Cluster) -> str:
    every = ((node.count, group) for node in found.nodes for group in node.accelerators)
    return ", ".join(f"{count} x {group.count} {group.device}" for count, group in every)


def _models() -> dict[str, str]:
    """Each card, and the repositories whose weights have its modules."""
    found: dict[str, str] = {}
    for name in card_names():
        known = card(name)
        found[name] = known.repo
        found |= dict.fromkeys(known.aliases, f"the weights of {name}")
        found |= dict.fromkeys(known.siblings, f"other weights for the modules of {name}")
    return found


def _datasets() -> dict[str, str]:
    """The columns of each public data set."""
    return {name: ", ".join(dataset(name).columns) for name in dataset_names()}


def _targets(session: Session) -> dict[str, str]:
    found = {name: session.registry.resolve(name) for name in session.registry.names()}
    return {name: f"{t.package} {t.supported}" for name, (t, _) in found.items()}


def _target(target: Any) -> dict[str, Any]:
    return {
        "name": target.name,
        "package": target.package,
        "supported": str(target.supported),
        "files": [file.name for file in target.files],
        "cannot": {slot: why.reason for slot, why in target.cannot.items()},
    }


def _slot(path: str) -> dict[str, Any]:
    slot = SLOTS[path]
    decided = next(each.name for each in PIPELINE if slot.group in each.decides)
    kind = getattr(slot.type, "__name__", None) or str(slot.type)
    return {"slot": path, "doc": slot.doc, "unit": slot.unit, "type": kind, "decided_by": decided}


def _pass(name: str) -> dict[str, Any]:
    each = {known.name: known for known in PIPELINE}[name]
    return {
        "name": name,
        "reads": list(each.reads),
        "decides": list(each.decides),
        "contract": each.contract,
    }


def _title(code: str) -> str:
    return page(code).partition("\n")[0].lstrip("# ")
