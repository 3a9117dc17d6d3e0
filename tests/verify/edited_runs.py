"""Compiled runs whose files are edited by hand, and what every program then says of them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from tests.tables import table

from tunec.compiler.driver import compile_spec
from tunec.compiler.frontend.load import load_spec
from tunec.compiler.verify.cases import cases_of
from tunec.compiler.verify.contract import Case, Delivered
from tunec.schemas.frozen import replace
from tunec.targets.registry import REGISTRY

EXAMPLES = Path(__file__).parents[2] / "examples"

_LLAMA = """
tunec: 1
model: llama-3.1-8b
method: {lora: {rank: 16, targets: [q_proj, v_proj]}}
data: {train: org/set, samples: 10k, sequence: 2048}
hardware: a100-80g-x8
batch: {global: 32}
train: {learning_rate: 2e-4, optimizer: {weight_decay: 0.1}}
"""
SPECS: Mapping[str, tuple[str, str]] = {
    "deepspeed": (
        f"name: run\nengine: deepspeed\n{_LLAMA}pin: {{zero.stage: 2}}\n",
        "deepspeed huggingface launch trl",
    ),
    "ddp": (f"name: ddp\nengine: ddp\n{_LLAMA}", "huggingface launch"),
    "accelerate": (
        f"name: accelerated\nengine: ddp\n{_LLAMA}pin: {{launch.launcher: accelerate}}\n",
        "launch accelerate",
    ),
    "fsdp": (
        f"name: sharded\nengine: fsdp\n{_LLAMA}launcher: accelerate\n",
        "accelerate",
    ),
    "glm4": (
        """
tunec: 1
name: glm4
engine: deepspeed
model: glm-4v-9b
method: {lora: {rank: 8}}
data: {train: train.jsonl, samples: 10k, sequence: 1024, images: {per_sample: 1}}
hardware: a100-80g-x8
batch: {global: 64}
""",
        "glm4",
    ),
    "minicpm": (
        """
tunec: 1
name: minicpm
model: minicpm-v-2_6
method: {lora: {rank: 64, alpha: 64, dropout: 5%, targets: attention}}
data: {train: train.json, samples: 10k, sequence: 2048, images: {per_sample: 1}}
hardware: a100-80g-x2
batch: {global: 16}
""",
        "minicpm-v",
    ),
    "cookbook": (
        """
tunec: 1
name: cookbook
model: llama-3.2-3b
method: {qlora: {rank: 8, alpha: 32, dropout: 5%, targets: [q_proj, v_proj]}}
data: {train: samsum, samples: 10k, sequence: 2048}
hardware: a100-80g-x1
batch: {global: 8}
""",
        "llama-cookbook",
    ),
    "cookbook on fsdp": (
        """
tunec: 1
name: sharded
model: llama-3.2-3b
method: {lora: {rank: 8, alpha: 32, dropout: 5%, targets: [q_proj, v_proj]}}
data: {train: samsum, samples: 10k, sequence: 2048}
hardware: a100-80g-x2
engine: fsdp
batch: {global: 8}
""",
        "llama-cookbook",
    ),
    "visualglm": (
        """
tunec: 1
name: visualglm
model: visualglm-6b
method:
  lora:
    rank: 10
    alpha: 1
    dropout: 0
    targets: transformer\\.layers\\.\\d+\\.attention\\.(query_key_value|dense)
data:
  train: dataset.json
  samples: 20
  sequence: 320
  images: {per_sample: 1, width: 224, height: 224}
hardware: v100-32g-x2
batch: {global: 8}
precision: fp16
train: {steps: 300, learning_rate: 1e-4, warmup: 2%}
""",
        "visualglm",
    ),
}
EXAMPLE_FILES: Mapping[str, tuple[str, str]] = {
    "flux": ("simpletuner-flux-lora/spec.yaml", "simpletuner"),
    "p100": ("visualglm-6b-p100/qlora-deprecated-fp16.yaml", "deepspeed launch"),
}


@cache
def cases(name: str) -> Mapping[str, Case]:
    """The cases of a run by target, as compiled."""
    if name in SPECS:
        text, targets = SPECS[name]
        loaded = _load(text)
    else:
        file, targets = EXAMPLE_FILES[name]
        loaded = load_spec(EXAMPLES / file, targets=REGISTRY.names())
    asked = [REGISTRY.resolve(each, loaded.spec.software) for each in targets.split()]
    compiled = compile_spec(loaded, asked)
    assert compiled.ok, [each.message for each in compiled.diagnostics]
    return {each.target.name: each for each in cases_of(compiled, asked)}


def _load(text: str):
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        path = Path(folder, "spec.yaml")
        path.write_text(text)
        return load_spec(path, targets=REGISTRY.names())


Edit = Callable[[str], str]


@dataclass(frozen=True)
class Fault:
    """One edit of one file of a run, and what must be said of it."""

    run: str
    target: str
    file: str
    edit: Edit
    key: str
    resolved: Any
    program: str
    status: str = "differs"
    slot: str | None = None

    def case(self, name: str) -> Case:
        """The run with the fault in it."""
        whole = cases(self.run)[self.target]
        old = whole.delivered[self.file]
        text = self.edit(old.text)
        assert text != old.text, name
        planted = Delivered(old.name, f"{name}/{old.name}", text)
        return replace(whole, spec=name, delivered={**whole.delivered, self.file: planted})

    @property
    def expected(self) -> Any:
        """What the plan writes for the key; None for nothing."""
        value: Any = cases(self.run)[self.target].expected[self.file].values
        for part in self.key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value


def _at(document: Any, key: str) -> tuple[Any, str]:
    *parents, last = key.split(".")
    for parent in parents:
        document = document[parent]
    return document, last


def _document(change: Callable[[Any], None]) -> Edit:
    def edit(text: str) -> str:
        is_json = text.lstrip()[:1] in "{["
        found = json.loads(text) if is_json else yaml.safe_load(text)
        change(found)
        return json.dumps(found, indent=2) if is_json else yaml.safe_dump(found, sort_keys=False)

    return edit


def put(key: str, value: Any) -> Edit:
    """Write a key, there or not."""

    def change(document: Any) -> None:
        place, last = _at(document, key)
        place[last] = value

    return _document(change)


def drop(key: str) -> Edit:
    """Delete a key."""

    def change(document: Any) -> None:
        place, last = _at(document, key)
        del place[last]

    return _document(change)


def swap(old: str, new: str) -> Edit:
    """Replace a piece of text."""
    return lambda text: text.replace(old, new, 1)


def both(*edits: Edit) -> Edit:
    """One edit after the other."""

    def edit(text: str) -> str:
        for each in edits:
            text = each(text)
        return text

    return edit


def faults(part: str) -> dict[str, Fault]:
    """The faults of a part of `faults.yaml`, by name."""
    groups = table(__file__, "faults.yaml")[part]
    return {name: _fault(group, row) for group in groups for name, row in group["faults"].items()}


def _fault(group: Mapping[str, Any], row: Mapping[str, Any]) -> Fault:
    written, dropped = row.get("put", {}), row.get("drop")
    edits = [put(*each) for each in written.items()]
    edits += [drop(dropped)] if dropped else []
    edits += [swap(*each) for each in row.get("swap", {}).items()]
    key = row.get("key", next(iter(written), dropped))
    return Fault(
        *(group["run"], group["target"], group.get("file", "")),
        *(both(*edits), key, row.get("resolved", next(iter(written.values()), None))),
        *(group["program"], row.get("status", "differs"), row.get("slot")),
    )
