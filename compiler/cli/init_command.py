"""`tunec init`: a starting spec."""

import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tunec.compiler.analyses.architecture.derive import derive
from tunec.compiler.cli.files import write_all
from tunec.compiler.cli.schema_command import schema
from tunec.compiler.cli.session import OK, Misuse, Session
from tunec.compiler.diagnostics.wording import nearest
from tunec.schemas.hardware.catalogue import UnknownName as UnknownHardware
from tunec.schemas.hardware.catalogue import cluster
from tunec.schemas.models.card import ModelCard
from tunec.schemas.models.catalogue import UnknownName as UnknownModel
from tunec.schemas.models.catalogue import card, repository

_SCHEMA: Final = "spec.schema.json"
"""The schema's file, beside the spec: the first line of a spec leads editors to it."""


def run(options: Namespace, session: Session) -> int:
    """Print a spec that compiles as it stands, for a known model on known hardware."""
    try:
        found = card(options.model)
        cluster(options.hardware)
    except UnknownModel as unknown:
        raise Misuse(f"{unknown}{_hint(nearest(unknown.name, unknown.known), 'models')}") from None
    except UnknownHardware as unknown:
        raise Misuse(f"{unknown}{_hint(unknown.near, 'clusters')}") from None
    text = _text(found, options)
    if options.output is not None:
        return _write(Path(options.output), text, session)
    if session.format == "json":
        session.json({"spec": text})
    else:
        session.result(text)
    return OK


def _write(path: Path, text: str, session: Session) -> int:
    """Write a spec that is not there yet, and the schema by which editors complete it."""
    if path.exists():
        raise Misuse(f"{path} is there already")
    known = json.dumps(schema("spec", session.registry.names()), indent=2, ensure_ascii=False)
    write_all({path: text, path.parent / _SCHEMA: known + "\n"})
    session.note(f"written: {path}, {path.parent / _SCHEMA}; next: tunec plan {path}")
    return OK


def _hint(near: Sequence[str], kind: str) -> str:
    hint = f"did you mean {' or '.join(near)}?" if near else f"`tunec catalog {kind}` lists them"
    return f"; {hint}"


def _name(found: ModelCard, given: str) -> str:
    """The card's name where it stands for the asked weights, else where these lie."""
    path = repository(given)
    return found.name if path.lower() == found.repo.lower() else path


def _text(found: ModelCard, options: Namespace) -> str:
    diffusion = derive(found.config).kind == "diffusion"
    size = "resolution: 1024" if diffusion else "sequence: 2048"
    data = "images" if diffusion else "train.jsonl"
    target = "simpletuner" if diffusion else "trl"
    return f"""\
# yaml-language-server: $schema={_SCHEMA}
# `tunec schema -o {_SCHEMA}` writes the file by which editors complete and check this one
tunec: 1
model: {_name(found, options.model)}  # one of `tunec catalog models`, or a path to a config.json
method: {options.method}
data:
  train: {data}
  samples: 10k  # steps, warm-up and saving follow from it
  {size}
hardware: {options.hardware}  # one of `tunec catalog clusters`, or a device with a count
train:
  epochs: 1
targets: [{target}]
"""
