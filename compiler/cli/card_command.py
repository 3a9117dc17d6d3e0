"""`tunec card`: the derived card of a model, read off its real class."""

import json
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tunec.compiler.analyses.architecture import UnknownArchitecture, derive
from tunec.compiler.cli.files import write_all
from tunec.compiler.cli.session import INPUT, OK, Session
from tunec.compiler.derived_cards import KEY, NoCard, card_of, hub_config, make, read
from tunec.compiler.frontend.names import is_path
from tunec.schemas.models.catalogue import UnknownName, card
from tunec.schemas.models.derived_card import DerivedCard


def run(options: Namespace, session: Session) -> int:
    """Find or make the card of a model; write it, or say what it holds."""
    name = options.model
    try:
        model, config = _asked(name)
        found = read(make(config, model)) if options.output else card_of(config, model)
    except NoCard as reason:
        return _refuse(session, name, str(reason))
    if options.output is not None:
        write_all({Path(options.output): found.to_json().decode()})
        session.note(f"wrote {options.output}")
    elif session.format == "json":
        session.json(json.loads(found.to_json()))
    else:
        session.result(_text(name, found))
    return OK


def _asked(name: str) -> tuple[str, Mapping[str, Any]]:
    """The repository and the config that a name leads to. Raises NoCard where it leads nowhere."""
    if not is_path(name, Path()):
        try:
            return card(name).repo, card(name).config
        except UnknownName:
            place = hub_config(name)
            if place is None:
                raise NoCard(
                    "neither the catalogue nor the local Hugging Face cache knows it: give its "
                    "config.json"
                ) from None
            return name, _read(place)
    path = Path(name)
    config = _read(path / "config.json" if path.is_dir() else path)
    return str(config.get("model", "")) if KEY in config else "", config


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as fault:
        raise NoCard(f"{path} cannot be read: {fault}") from None
    if not isinstance(found, dict):
        raise NoCard(f"{path} does not hold a mapping")
    return found


def _text(name: str, found: DerivedCard) -> str:
    """One screen: what the model is, its layers by kind, and where its card came from."""
    model = found.architecture
    lines = [
        f"{name}: {model.family}, {model.kind}",
        f"{model.parameters / 1e9:.3f} billion parameters, by the module tree" + _agreement(found),
    ]
    for stack in model.stacks:
        experts = stack.experts
        inner = f"{experts.count} experts, {experts.active} a token" if experts else "dense"
        window = f", window {stack.window}" if stack.window else ""
        lines.append(
            f"  {stack.layers} layers: hidden {stack.hidden}, {stack.heads} heads "
            f"({stack.kv_heads} for keys and values) of {stack.head_dim}, {inner}{window}"
        )
    measured = model.denoiser.around if model.denoiser is not None else model.around
    lines.append(f"measured in {len(measured)} ways of computing; {found.release}")
    return "\n".join(lines) + "\n"


def _agreement(found: DerivedCard) -> str:
    """Whether the rules of the family, where there are some, count the same."""
    try:
        counted = derive(found.config).parameters
    except (UnknownArchitecture, ValueError):
        return ""
    same = counted == found.architecture.parameters
    return "; the family's rule counts " + ("the same" if same else f"{counted}")


def _refuse(session: Session, name: str, reason: str) -> int:
    if session.format == "json":
        session.json({"card": None, "refused": reason})
    else:
        session.note(f"tunec card: {name}: {reason}")
    return INPUT
