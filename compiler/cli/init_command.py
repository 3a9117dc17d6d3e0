"""`tunec init`: a starting spec."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tunec.compiler.analyses.architecture.derive import derive
from tunec.compiler.cli.session import OK, Misuse, Session
from tunec.compiler.cli.spec_output import modeline, refuse_existing, write_spec
from tunec.compiler.diagnostics.wording import nearest
from tunec.schemas.hardware.catalogue import UnknownName as UnknownHardware
from tunec.schemas.hardware.catalogue import cluster
from tunec.schemas.models.card import ModelCard
from tunec.schemas.models.catalogue import UnknownName as UnknownModel
from tunec.schemas.models.catalogue import card, repository

_MODEL: Final = "llama-3.2-3b"
_HARDWARE: Final = "a100-80g-x1"
_METHOD: Final = "lora"


def run(options: Namespace, session: Session) -> int:
    """Print a spec that compiles as it stands, or the spec of files that are there."""
    if options.files:
        from tunec.compiler.cli import spec_from_files

        return spec_from_files.run([Path(each) for each in options.files], options, session)
    if options.overrides or options.without:
        raise Misuse("--set and --without need --from and the config files")
    return _begin(options, session)


def _begin(options: Namespace, session: Session) -> int:
    """A spec for a known model on known hardware."""
    model, hardware = options.model or _MODEL, options.hardware or _HARDWARE
    try:
        found = card(model)
        cluster(hardware)
    except UnknownModel as unknown:
        raise Misuse(f"{unknown}{_hint(nearest(unknown.name, unknown.known), 'models')}") from None
    except UnknownHardware as unknown:
        raise Misuse(f"{unknown}{_hint(unknown.near, 'clusters')}") from None
    output = None if options.output is None else Path(options.output)
    refuse_existing(output)
    names = " ".join(_name(found, model).split()), " ".join(hardware.split())
    text = _text(found, *names, options.method or _METHOD, output)
    if output is not None:
        write_spec(output, text, session)
    elif session.format == "json":
        session.json({"spec": text})
    else:
        session.result(text)
    return OK


def _hint(near: Sequence[str], kind: str) -> str:
    hint = f"did you mean {' or '.join(near)}?" if near else f"`tunec catalog {kind}` lists them"
    return f"; {hint}"


def _name(found: ModelCard, given: str) -> str:
    """The card's name where it stands for the asked weights, else where these lie."""
    path = repository(given)
    return found.name if path.lower() == found.repo.lower() else path


def _text(found: ModelCard, model: str, hardware: str, method: str, output: Path | None) -> str:
    diffusion = derive(found.config).kind == "diffusion"
    size = "resolution: 1024" if diffusion else "sequence: 2048"
    data = "images" if diffusion else "train.jsonl"
    target = "simpletuner" if diffusion else "trl"
    return f"""\
# {modeline(output)}
tunec: 1
model: {model}  # one of `tunec catalog models`, or a path to a config.json
method: {method}
data:
  train: {data}
  samples: 10k  # steps, warm-up and saving follow from it
  {size}
hardware: {hardware}  # one of `tunec catalog clusters`, or a device with a count
train:
  epochs: 1
targets: [{target}]
"""
