"""`tunec init`: a starting spec."""

import json
import os
import re
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tunec.compiler.cli.session import OK, Misuse, Session
from tunec.compiler.cli.spec_from_files import modeline, refuse_existing, write_spec
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.facts import ResolvedModel
from tunec.compiler.frontend.load import MAPPING, Loaded, load_mapping
from tunec.compiler.frontend.names import is_path
from tunec.compiler.frontend.project import Project
from tunec.compiler.frontend.samples import count_samples
from tunec.compiler.resolve import Unresolved, resolve
from tunec.schemas.data_paths import data_kind
from tunec.schemas.models.catalogue import repository
from tunec.schemas.training_data import Data

_MODEL: Final = "llama-3.2-3b"
_HARDWARE: Final = "a100-80g-x1"
_METHOD: Final = "lora"
_SEQUENCE: Final = 2048
_TRAINERS: Final[Mapping[str, str]] = {
    "causal-lm": "trl",
    "vision-language": "trl",
    "diffusion": "simpletuner",
}
"""The trainer for each kind of model; other kinds need the user's own script."""
_PLAIN: Final = re.compile(r"[A-Za-z./][\w./-]*(:[\w.-]+)*", re.ASCII)
"""Paths and names that YAML reads as text without quotes."""


def run(options: Namespace, session: Session) -> int:
    """Print a spec that compiles as it is, or the spec of existing files."""
    if options.files:
        if options.data is not None:
            raise Misuse("--data begins a new spec; with --from, write --set data.train=...")
        from tunec.compiler.cli import spec_from_files

        return spec_from_files.run([Path(each) for each in options.files], options, session)
    if options.overrides or options.without:
        raise Misuse("--set and --without need --from and the config files")
    return _begin(options, session)


def _begin(options: Namespace, session: Session) -> int:
    """A spec for a known model, or for one whose config exists, on known hardware."""
    output = None if options.output is None else Path(options.output)
    refuse_existing(output)
    folder = output.parent if output else Path()
    model = _seen_from(folder, options.model or _MODEL)
    hardware = _seen_from(folder, options.hardware or _HARDWARE)
    spec = {"model": model, "hardware": hardware, "method": _METHOD, "data": {"train": "data"}}
    loaded = load_mapping({"tunec": 1, **spec}, base=folder, allow_outside=True)
    if any(each.span is not None and each.span.file != MAPPING for each in loaded.diagnostics):
        return session.refuse(loaded.diagnostics, loaded.sources)
    found = _resolved(loaded)
    method = options.method or _METHOD
    name = _name(found, model, folder)
    target = _target(found.architecture.kind, {**spec, "method": method}, folder, session)
    data = _data(found.architecture.kind, target, options.data, folder)
    text = _text(found, name, hardware, method, target, output, data)
    if output is not None:
        write_spec(output, text, session)
    elif session.format == "json":
        session.json({"spec": text})
    else:
        session.result(text)
    return OK


def _seen_from(folder: Path, given: str) -> str:
    """A name without spaces around it; a path as it is written in a spec in a folder."""
    if is_path(given, Path()):
        return _path_from(folder, given)
    return " ".join(given.split())


def _path_from(folder: Path, path: str) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def _resolved(loaded: Loaded) -> ResolvedModel:
    """The model that the name refers to; Misuse if there is none."""
    faults = loaded.diagnostics
    if loaded.spec is not None:
        try:
            return resolve(loaded.spec, loaded.base, followed=loaded.followed).model
        except Unresolved as unresolved:
            faults = unresolved.diagnostics
    raise Misuse("; ".join(_sentence(each) for each in faults))


def _sentence(fault: Diagnostic) -> str:
    return "; ".join((fault.message, *fault.notes, *([fault.help] if fault.help else [])))


def _name(found: ResolvedModel, given: str, folder: Path) -> str:
    """The card's name if it stands for the requested weights, else their path or repository."""
    if found.card is None or is_path(given, folder):
        return given
    path = repository(given)
    return found.card.name if path.lower() == found.card.repo.lower() else path


def _target(kind: str, spec: Mapping[str, Any], folder: Path, session: Session) -> str:
    """The trainer for a kind of model, in the newest release that supports this model.

    SimpleTuner drops model families: 4.0 has none of Stable Diffusion 2's. A vision-language model
    with classes of its own has a script by its authors; LLaMA-Factory extracts a part of some.
    """
    name = _TRAINERS.get(kind, "huggingface")
    if kind not in _DATA:
        return name
    asked: tuple[str, ...] = (name, *_OF_MAKERS)
    if kind == "diffusion":
        releases = session.registry.resolve(name)[0].releases
        asked = (name, *(f"{name}@{each}" for each in reversed(releases)))
    whole = {"tunec": 1, **spec, "data": _DATA[kind], "train": {"epochs": 1}}
    loaded = load_mapping(whole, base=folder, allow_outside=True)
    return next((each for each in asked if _takes(each, loaded, session)), name)


_OF_MAKERS: Final = ("glm4", "minicpm-v", "llamafactory", "huggingface")
_FILES: Final = {"minicpm-v": "train.json"}
"""Data files of trainers that do not read JSON lines."""
_DATA: Final[Mapping[str, Mapping[str, Any]]] = {
    "diffusion": {"train": "images", "samples": "10k", "resolution": 1024},
    "vision-language": {"train": "train.jsonl", "samples": "10k", "sequence": 2048},
}
"""Data settings of models that not every trainer supports."""


def _takes(target: str, loaded: Loaded, session: Session) -> bool:
    """Whether a release of a trainer accepts the model and the spec."""
    from tunec.compiler.driver import compile_spec

    compiled = compile_spec(loaded, (session.registry.resolve(target),), repairing=False)
    errors = (each for each in compiled.diagnostics if each.severity == "error")
    about = {label.path.partition(".")[0] for each in errors for label in each.labels}
    return about.isdisjoint(("model", ""))


def _data(kind: str, target: str, given: str | None, folder: Path) -> str:
    """The training data as seen from the spec's folder: what is given, or the trainer's usual."""
    if given is None:
        return "images" if kind == "diffusion" else _FILES.get(target, "train.jsonl")
    return given if data_kind(given) in ("name", "url") else _path_from(folder, given)


def _samples(train: str, folder: Path) -> str:
    """The line about the number of samples, which are counted if the data is there."""
    counted = count_samples(Data(train=train), Project(folder))
    if counted:
        return f"samples: {counted}  # counted; steps, warm-up and saving follow from it"
    return "samples: 10k  # write your number: steps, warm-up and saving follow from it"


def _text(
    found: ResolvedModel,
    model: str,
    hardware: str,
    method: str,
    target: str,
    output: Path | None,
    data: str,
) -> str:
    kind, context = found.architecture.kind, found.architecture.context
    sequence = min(_SEQUENCE, context or _SEQUENCE)
    size = "resolution: 1024" if kind == "diffusion" else f"sequence: {sequence}"
    given = found.architecture.references
    beside = (
        "\n  references: [before]  # folders of reference images" if given and given.least else ""
    )
    return f"""\
# {modeline(output)}
tunec: 1
model: {model}  # one of `tunec catalog models`, or a path to a config.json
method: {method}
data:
  train: {data if _PLAIN.fullmatch(data) else json.dumps(data)}{beside}
  {_samples(data, output.parent if output else Path())}
  {size}
hardware: {hardware}  # one of `tunec catalog clusters`, or a device with a count
train:
  epochs: 1
targets: [{target}]
"""
