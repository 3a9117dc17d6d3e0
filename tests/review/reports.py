"""Pages for tests: one plan that fits, one that does not, one fleet, one hostile."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tunec.compiler.driver import Planned, plan
from tunec.compiler.frontend.load import load_spec
from tunec.compiler.review.report.pages import fleet_page, plan_page

EXAMPLES = Path(__file__).parents[2] / "examples"
FITS = EXAMPLES / "minicpm-v-2_6-lora/spec.yaml"
FIVE = EXAMPLES / "five-lines/spec.yaml"
LACKS = EXAMPLES / "visualglm-6b-p100/spec.yaml"
HOSTILE = "</script><script>alert(1)</script><b onload='x'>&amp;\u202e"


def planned(spec: Path, *overrides: str, hardware: str | None = None) -> Planned:
    return plan(load_spec(spec, overrides=list(overrides), hardware=hardware))


def page_of(found: Planned) -> str:
    return plan_page(found, found.diagnostics, found.loaded.sources)


def rows(specs: int, clusters: int, name: str = "") -> Iterator[dict[str, Any]]:
    """Rows of a fleet's summary: one pair in seven does not fit."""
    for at in range(specs):
        for on in range(clusters):
            pair = {"spec": f"spec-{at:03}{name}", "cluster": f"cluster-{on:04}{name}"}
            if (at + on) % 7 == 3:
                why = f"nothing fits: the smallest layout needs {30 + on} GiB of the 15.9 GiB"
                yield {**pair, "fits": False, "why": why + name}
                continue
            yield {
                **pair,
                "fits": True,
                "precision": "bf16" if on % 3 else "fp16",
                "engine": "deepspeed" if on % 2 else "none",
                "zero": on % 4 if on % 2 else 0,
                "offload": "none",
                "checkpointing": "layer",
                "micro": 1 << on % 5,
                "accumulation": 2,
                "global": 64,
                "devices": 1 << on % 4,
                "required_bytes": (10 + (at * 7 + on * 13) % 70) << 30,
                "budget_bytes": 80 << 30,
                "tokens_per_second": 1000.0 + 997 * ((at * 31 + on * 17) % 101),
                "samples_per_second": 1.5 + on,
                "cost_dollars": None if on % 5 == 0 else 2.5 * (on + 1),
            }


def fleet(specs: int, clusters: int, name: str = "") -> str:
    return fleet_page(f"build{name}", rows(specs, clusters, name))


def written(folder: Path, texts: Mapping[str, str]) -> dict[str, Path]:
    """The pages as files of a folder."""
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, "utf-8")
    return {name: folder / f"{name}.html" for name in texts}
