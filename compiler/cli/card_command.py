"""`tunec card`: the derived card of a model, measured on its real class."""

import json
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.analyses.architecture import UnknownArchitecture, derive
from tunec.compiler.cli.session import OK, Session
from tunec.compiler.derived_cards import KEY, NoCard, card_of, make, read
from tunec.compiler.diagnostics.diagnostic import Diagnostic
from tunec.compiler.frontend.faults import error
from tunec.compiler.frontend.names import check_model
from tunec.compiler.frontend.nodes import Node, descend, place
from tunec.compiler.frontend.parse import parse
from tunec.compiler.frontend.project import Project
from tunec.compiler.writing import write_all
from tunec.schemas.models.catalogue import card
from tunec.schemas.models.derived_card import DerivedCard
from tunec.schemas.source import COMMAND_LINE, Span


class _Asked(Struct, frozen=True):
    """What a name refers to: a config with its repository, or faults."""

    config: Mapping[str, Any]
    model: str
    file: Path | None
    """The config's file; None: the config is in the catalogue, or there is none."""
    sources: Mapping[str, str]
    faults: tuple[Diagnostic, ...] = ()


def run(options: Namespace, session: Session) -> int:
    """Find or make the card of a model; write it, or show what it holds."""
    name = options.model
    asked = _asked(name)
    if asked.faults:
        return session.refuse(asked.faults, asked.sources)
    code = asked.file.parent if options.trust_remote_code and asked.file else None
    try:
        made = make(asked.config, asked.model, code) if options.output else None
        found = read(made) if made else card_of(asked.config, asked.model, code)
    except NoCard as reason:
        return session.refuse((_diagnosed(reason, name, asked),), asked.sources)
    if options.output is not None:
        write_all({Path(options.output): found.to_json().decode()})
        session.note(f"wrote {options.output}")
    elif session.format == "json":
        session.json(json.loads(found.to_json()))
    else:
        session.tell(_text(name, found))
    return OK


def _asked(name: str) -> _Asked:
    """What the name on the command line refers to."""
    tree = _named(name)
    found = check_model(name, tree, Project(Path()))
    sources = {COMMAND_LINE: name, **dict(each.source for each in found.files)}
    if found.faults:
        return _Asked({}, "", None, sources, found.faults)
    if found.config is None:
        known = card(name)
        return _Asked(known.config, known.repo, None, sources)
    own = str(found.config.get("model", "")) if KEY in found.config else ""
    path = found.files[0].path if found.files else None
    return _Asked(found.config, own or _repository(name), path, sources)


def _named(name: str) -> Node:
    """The name as a document of one key, so that faults have their place."""
    span = Span(COMMAND_LINE, 1, 1, 1, max(len(name), 1) + 1)
    return Node(span, fields={"model": Node(span, name)})


def _repository(name: str) -> str:
    """The name of a repository; "" for the path of a file."""
    return "" if Path(name).exists() else name


def _diagnosed(reason: NoCard, name: str, asked: _Asked) -> Diagnostic:
    """Why there is no card, at the key of the config that is at fault."""
    tree, key = _named(name), "model"
    if asked.file is not None:
        text = asked.sources[str(asked.file)]
        read_again, _ = parse(text, str(asked.file), "json")
        tree, key = read_again or tree, reason.at
    at, _ = descend(tree, (key,) if key else ())
    notes = () if _counted(asked.config) is None else (_BY_RULE,)
    return error(reason.code, str(reason), place(at), notes=notes, help=reason.help)


_BY_RULE: Final = "plans need no card of it: a rule of tunec derives its family"


def _counted(config: Mapping[str, Any]) -> int | None:
    """The number of parameters by the family's rule; None: there is no rule."""
    try:
        return derive(config).parameters
    except (UnknownArchitecture, ValueError):
        return None


def _text(name: str, found: DerivedCard) -> str:
    """One screen: the model, its layers by kind, and the source of its card."""
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
    """Whether the family's rule, if there is one, gives the same count."""
    counted = _counted(found.config)
    if counted is None:
        return ""
    same = counted == found.architecture.parameters
    return "; the family's rule counts " + ("the same" if same else f"{counted}")
