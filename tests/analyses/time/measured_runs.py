"""Published step times with the workload, the layout and the machine that each was taken of.

`measured.jsonl` holds one run a line. `of` names the row of `../memory/measured.jsonl` that is the
same run; other lines state their settings as the rows of `stated_runs` do, and what all lines of a
source share stands with the source in `sources.json`. There too: repository, commit and path, and
whether the account may be fitted to a source (`fit`) or is judged by it (`judge`), which was
written before anything was fitted.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from math import log
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Literal

from measurements import Measurement, measurements
from stated_runs import layout_of, workload_of

from tunec.compiler.analyses.memory.workload import Layout, Workload
from tunec.compiler.analyses.time.account import TimeAccount, step_time
from tunec.compiler.analyses.time.coefficients import FITTED, Constants
from tunec.compiler.analyses.time.machine import Machine, machine_of
from tunec.schemas.frozen import replace
from tunec.schemas.hardware.catalogue import device

Row = dict[str, Any]
Split = Literal["fit", "judge"]
HERE: Final = Path(__file__).parent
SOURCES: Final[dict[str, Row]] = json.loads((HERE / "sources.json").read_text())["sources"]
NETWORK: Final = 25e9
"""Bytes per second between two nodes where a source does not state them: 200 Gbit/s."""
HOST: Final = 4e11
CORES: Final = 8
"""Of the host for each device."""
NOTHING: Final[Mapping[str, Any]] = {}


class Run:
    """One published run."""

    def __init__(self, row: Row) -> None:
        self.row = row

    @property
    def source(self) -> str:
        """The name of its table."""
        return str(self.row["source"])

    @property
    def split(self) -> Split:
        """Whether the account may be fitted to it."""
        found: Split = SOURCES[self.source]["split"]
        return found

    @property
    def search(self) -> int:
        """In which search its source was found: since the second one the account was settled."""
        return int(SOURCES[self.source].get("search", 1))

    @cached_property
    def workload(self) -> Workload:
        """What it trains, and on what."""
        of = self._measurement
        return of.account.workload if of else workload_of(self.row)

    @cached_property
    def layout(self) -> Layout:
        """How its devices share the work."""
        of = self._measurement
        found = of.account.layout if of else layout_of(self.row)
        moved = {"zero": replace(found.zero, **self.row["zero"])} if "zero" in self.row else {}
        return replace(found, nodes=self.row.get("nodes", 1), **moved)

    @property
    def _measurement(self) -> Measurement | None:
        return _memory()[self.row["of"]] if "of" in self.row else None

    @property
    def settings(self) -> Row:
        """Its row, with that of the memory's corpus."""
        of = self._measurement
        return {**of.row, **self.row} if of else self.row

    @cached_property
    def machine(self) -> Machine:
        """What it ran on."""
        nodes = self.layout.nodes
        per_node = self.layout.parallel.world // nodes
        found = machine(self.row["device"], self.workload, per_node, nodes, self.row)
        return replace(found, threads=self.row.get("threads", found.threads))

    @property
    def seconds(self) -> float:
        """Of one optimizer step, as published."""
        if "seconds" in self.row:
            return float(self.row["seconds"])
        batch = self.layout.batch
        tokens = batch.micro * batch.accumulation * self.workload.data.sequence
        return tokens / float(self.row["tokens_per_second"])

    @cached_property
    def account(self) -> TimeAccount:
        """What the compiler says of it."""
        return step_time(self.workload, self.layout, self.machine, self.constants(FITTED))

    def constants(self, at: Constants) -> Constants:
        """Those at which the account is asked: torch's compiler joins the passes between products
        of a layer, for which the share is taken that Liger's kernels leave of them."""
        return replace(at, traffic=at.traffic * at.fused) if "compiled" in self.row else at

    @property
    def error(self) -> float:
        """The logarithm of account over publication: above 0 it is too slow."""
        return log(self.account.step_seconds / self.seconds)

    @property
    def classes(self) -> Iterator[str]:
        """The classes that it belongs to."""
        asked, parallel = self.workload, self.layout.parallel
        yield f"device {self.row['device']}"
        if asked.architecture.kind == "diffusion":
            yield "diffusion"
        else:
            yield "experts" if any(s.experts for s in asked.architecture.stacks) else "dense"
        packed = "QLoRA" if asked.quantization.format != "none" else "LoRA"
        yield "full" if asked.adapter.kind == "none" else packed
        yield "one device" if parallel.world == 1 else "several devices"
        yield _length(0 if asked.architecture.kind == "diffusion" else asked.data.sequence)
        if self.search > 1:
            yield {2: "second search", 3: "third search", 4: "fourth search"}[self.search]


def _length(tokens: int) -> str:
    if not tokens:
        return "images"
    if tokens <= 1024:
        return "up to 1,024 tokens"
    return "1,025 to 8,192 tokens" if tokens <= 8192 else "above 8,192 tokens"


@cache
def _memory() -> dict[str, Measurement]:
    return {each.id: each for each in measurements()}


@cache
def runs() -> tuple[Run, ...]:
    """All of them, in the order of the file."""
    lines = map(json.loads, (HERE / "measured.jsonl").read_text("utf-8").splitlines())
    return tuple(
        Run({**SOURCES[row["source"]].get("common", {}), **row} if "of" not in row else row)
        for row in lines
    )


def machine(
    name: str,
    workload: Workload,
    per_node: int,
    nodes: int = 1,
    stated: Mapping[str, Any] = NOTHING,
) -> Machine:
    """Devices of the catalogue, joined by their own link or through PCIe.

    Of a row: `network`, bytes per second out of a node, and `link`, false where it is not used.
    """
    found = device(name)
    host = SimpleNamespace(memory_bandwidth=HOST, nvme=None, cores=CORES * per_node)
    node = SimpleNamespace(host=host, link=found.link if stated.get("link", True) else None)
    precision = workload.precision
    return machine_of(
        [found],
        node,
        SimpleNamespace(bandwidth=stated.get("network", NETWORK)),
        nodes=nodes,
        per_node=per_node,
        dtype=precision.compute,
        tf32=precision.tf32,
    )
