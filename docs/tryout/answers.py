"""The results that the page shows for its form's fields: the same in a browser and here.

In the browser this module runs under Pyodide, with the installed package; tests run it beside the
browser and compare the numbers.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

import tunec
from tunec.compiler.diagnostics.terminal import render_all
from tunec.compiler.driver import Planned
from tunec.compiler.review.report.html import render, tag
from tunec.compiler.review.report.sections import memory_section, time_section
from tunec.compiler.review.screen.pen import Pen
from tunec.compiler.review.screen.screen import length_lines, plan_screen, verdict

SPEC: Final = "spec.yaml"
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./%-]*")
_NUMBER: Final = re.compile(r"[1-9][0-9]*")
_PEN: Final = Pen()
_NOTHING: Final[dict[str, Any]] = {
    "verdict": "",
    "run": "",
    "screen": "",
    "memory": "",
    "time": "",
    "numbers": {},
}
"""The results that are shown without a plan."""


def spec_text(fields: Mapping[str, str]) -> str:
    """The spec of the form's fields, without empty ones."""
    numbers = [
        f"{name}: {_scalar(fields[name])}" for name in ("samples", "sequence") if fields.get(name)
    ]
    lines = [
        "tunec: 1",
        f"model: {_scalar(fields.get('model', ''))}",
        f"method: {_scalar(fields.get('method', ''))}",
        f"data: {{{', '.join(('train: train.jsonl', *numbers))}}}",
        f"hardware: {_scalar(fields.get('hardware', ''))}",
    ]
    if fields.get("memory"):
        lines.append(f"budget: {{gpu_memory: {_scalar(fields['memory'])}}}")
    if fields.get("target"):
        lines.append(f"targets: [{_scalar(fields['target'])}]")
    return "\n".join(lines) + "\n"


def _scalar(text: str) -> str:
    """A word or a number unchanged, anything else in quotes: no field can end its line."""
    word = text.strip()
    if _NUMBER.fullmatch(word) or (_WORD.fullmatch(word) and yaml.safe_load(word) == word):
        return word
    return '"' + "".join(each if _is_plain(each) else f"\\U{ord(each):08x}" for each in word) + '"'


def _is_plain(character: str) -> bool:
    return " " <= character <= "~" and character not in '"\\'


def answer(fields: Mapping[str, str]) -> dict[str, Any]:
    """Everything that the page shows: verdict, charts, spec and files, or the faults."""
    text = spec_text(fields)
    Path(SPEC).write_text(text, "utf-8")
    try:
        planned = tunec.plan(SPEC)
    except tunec.UnknownTarget as unknown:
        return {"spec": text, "fits": False, **_NOTHING, "faults": str(unknown), "files": []}
    found = {"spec": text, "fits": planned.ok, **_planned(planned)}
    if not planned.ok or not fields.get("target"):
        return {**found, "faults": _faults(planned), "files": []}
    compiled = tunec.compile(SPEC, output="out")
    files = [{"name": name, "text": each} for name, each in compiled.texts().items()]
    return {**found, "faults": _faults(compiled.planned, compiled.diagnostics), "files": files}


def _faults(planned: Planned, more: Any = ()) -> str:
    every = dict.fromkeys((*planned.diagnostics, *more))
    return render_all(every, planned.loaded.sources)


def _planned(planned: Planned) -> dict[str, Any]:
    plan, memory, time = planned.plan, planned.memory, planned.time
    if plan is None or memory is None or time is None:
        return _NOTHING
    micro_batches = plan.batch.accumulation
    return {
        "verdict": verdict(plan, memory, _PEN),
        "run": "\n".join(length_lines(planned, _PEN)),
        "screen": plan_screen(planned, _PEN),
        "memory": render(tag("div", *memory_section(plan, memory).content)),
        "time": render(tag("div", *time_section(time, micro_batches).content)),
        "numbers": {
            "required_bytes": memory.required_bytes,
            "budget_bytes": plan.devices.budget,
            "step_seconds": time.step_seconds,
        },
    }
