"""What the asked targets cannot do without: pins of theirs, unless the spec says otherwise."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from packaging.version import Version

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.frontend.load import Loaded
from tunec.compiler.ir.ledger import Definition, Origin, Rank
from tunec.compiler.ir.plan import Draft
from tunec.compiler.ir.show import show
from tunec.compiler.target import Target
from tunec.schemas.source import Path, dotted
from tunec.schemas.spec import Spec

Asked = tuple[Target, Version]
"""A target and the version that was asked for."""

_STATED: Final[Mapping[str, tuple[Path, Callable[[Spec], Any]]]] = {
    "attention.implementation": (("attention",), lambda spec: spec.attention),
    "batch.global": (("batch", "global"), lambda spec: spec.batch.global_),
    "launch.launcher": (("launcher",), lambda spec: spec.launcher),
    "optimizer.name": (("train", "optimizer"), lambda spec: spec.train.optimizer.name),
    "parallel.engine": (("engine",), lambda spec: spec.engine),
    "precision.compute": (("precision",), lambda spec: spec.precision.compute),
    "schedule.kind": (("train", "schedule"), lambda spec: spec.train.schedule),
}
"""Slots that a field of the spec states directly: the field, and its value."""


def requirements(asked: Iterable[Asked]) -> list[Definition]:
    """What the asked targets pin."""
    return [
        _pin(target, path, value) for target, _ in asked for path, value in target.requires.items()
    ]


def needs(asked: Iterable[Asked]) -> tuple[Callable[[Spec, Draft], list[Definition]], ...]:
    """What the asked targets pin once they know the spec, or more of the plan."""

    def of(target: Target) -> Callable[[Spec, Draft], list[Definition]]:
        return lambda spec, draft: [
            _pin(target, path, value) for path, value in target.needs(spec, draft).items()
        ]

    return tuple(of(target) for target, _ in asked)


def _pin(target: Target, path: str, value: Any) -> Definition:
    reason, rests = f"target {target.name} needs it", (Origin("target", target.name),)
    return Definition(path, value, Rank.PIN, "target", reason, rests)


def contradicted(loaded: Loaded, asked: Sequence[Asked]) -> Iterator[Diagnostic]:
    """Fields of the spec that ask for something else than a target can do."""
    if loaded.spec is None:
        return
    for target, _ in asked:
        for slot, needed in target.requires.items():
            path, value_of = _STATED.get(slot, ((), lambda _: None))
            stated = value_of(loaded.spec) if path and path in loaded.spans else None
            if stated is not None and stated != needed:
                yield Diagnostic(
                    "E0903",
                    "error",
                    f"{target.name} needs {slot} {show(slot, needed)}, and the spec asks for "
                    f"{show(slot, stated)}",
                    (Label("asked for here", path=dotted(path)),),
                    help=f"ask for {show(slot, needed)}, or compile to another target",
                )
