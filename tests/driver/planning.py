"""Specs as short as a test can say them, and what becomes of them."""

from functools import cache
from pathlib import Path
from typing import Any

from tunec.compiler.driver import Planned, plan
from tunec.compiler.frontend.load import Loaded, load_mapping, load_spec
from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.slots import SLOTS
from tunec.compiler.ir.values import plain
from tunec.schemas.units import GIB
from tunec.targets.registry import REGISTRY

EXAMPLES = Path(__file__).parents[2] / "examples"


def example_files() -> list[str]:
    """Every spec below `examples/`, as `case/file.yaml`."""
    found = EXAMPLES.glob("*/*.yaml")
    return sorted(f"{path.parent.name}/{path.name}" for path in found)


@cache
def example(name: str) -> Planned:
    """The plan of an example with the targets that it asks for."""
    loaded = load_spec(EXAMPLES / name, targets=REGISTRY.names())
    return plan(loaded, asked(loaded))


def asked(loaded: Loaded) -> tuple[Any, ...]:
    """The targets of a spec."""
    spec = loaded.spec
    return tuple(REGISTRY.resolve(name, spec.software) for name in spec.targets) if spec else ()


def spec_of(**changes: Any) -> dict[str, Any]:
    """A small spec, with fields replaced."""
    base = {
        "tunec": 1,
        "model": "llama-3.2-1b",
        "method": "lora",
        "data": {"train": "train.jsonl", "samples": 1000, "sequence": 1024},
        "hardware": "a100-80g-x2",
    }
    return {**base, **changes}


def planned(*, repairing: bool = True, **changes: Any) -> Planned:
    """What becomes of a small spec; `repairing` takes most of the time where nothing fits."""
    loaded = load_mapping(spec_of(**changes))
    assert loaded.spec is not None, [each.message for each in loaded.diagnostics]
    return plan(loaded, repairing=repairing)


def decided(**changes: Any) -> Plan:
    """The plan of a small spec that has one."""
    found = planned(**changes)
    assert found.plan is not None, [each.message for each in found.diagnostics]
    return found.plan


def codes(found: Planned) -> set[str]:
    """Ids of what was reported."""
    return {each.id for each in found.diagnostics}


def errors(found: Planned) -> list[str]:
    """Messages of what is wrong."""
    return [each.message for each in found.diagnostics if each.severity == "error"]


def pins_of(made: Plan) -> dict[str, Any]:
    """Every slot of a plan as a spec pins it."""
    return {slot: _written(slot, plain(value)) for slot, value in made.values().items()}


def _written(slot: str, value: Any) -> Any:
    """A value as a spec says it: a few bytes need their unit."""
    is_few = SLOTS[slot].unit == "bytes" and 0 < (value or 0) < GIB
    return f"{value}B" if is_few else value
