"""`tunec init`: a starting spec."""

from argparse import Namespace

from tunec.compiler.analyses.architecture.derive import derive
from tunec.compiler.cli.session import OK, Misuse, Session
from tunec.schemas.hardware.catalogue import UnknownName as UnknownHardware
from tunec.schemas.hardware.catalogue import cluster
from tunec.schemas.models.card import ModelCard
from tunec.schemas.models.catalogue import UnknownName as UnknownModel
from tunec.schemas.models.catalogue import card


def run(options: Namespace, session: Session) -> int:
    """Print a spec that compiles as it stands, for a known model on known hardware."""
    try:
        found = card(options.model)
        cluster(options.hardware)
    except (UnknownModel, UnknownHardware) as unknown:
        raise Misuse(str(unknown.args[0])) from None
    session.result(_text(found, options))
    return OK


def _text(found: ModelCard, options: Namespace) -> str:
    diffusion = derive(found.config).kind == "diffusion"
    size = "resolution: 1024" if diffusion else "sequence: 2048"
    data = "images" if diffusion else "train.jsonl"
    target = "simpletuner" if diffusion else "huggingface, launch"
    return f"""\
# yaml-language-server: $schema=https://raw.githubusercontent.com/tunec/tunec/main/schemas/json/tunec/spec.json
tunec: 1
model: {found.name}            # tunec catalog models
method: {options.method}
data:
  train: {data}
  samples: 10k                 # steps, warm-up and saving follow from it
  {size}
hardware: {options.hardware}   # tunec catalog clusters
train:
  epochs: 1
targets: [{target}]
"""
