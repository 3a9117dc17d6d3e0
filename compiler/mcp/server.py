"""The server: one tool for each command that reads, and for those that write into a directory.

Every path stays below the directory that the server was started for. `compile` and `translate`
write, into the directory that the call names and nowhere else; `verify` fetches nothing.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, Final, TypeVar

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from msgspec import Struct
from pydantic import Field

from tunec.compiler.diagnostics.terminal import printable
from tunec.compiler.frontend.project import confined
from tunec.compiler.mcp import results

_FOUND: Final = (0, 1)
"""Exit codes with a result: no fault, or some fault."""

Spec = Annotated[str, Field(description="path of a spec")]
Paths = Annotated[list[str], Field(description="paths of configs and launch scripts", min_length=1)]
Hardware = Annotated[str | None, Field(description="such as a100-80g-x8, or a cluster file")]
Model = Annotated[str | None, Field(description="a catalogue model, or the path of a config.json")]
Overrides = Annotated[list[str], Field(description="PATH=VALUE, such as data.sequence=1024")]
Targets = Annotated[list[str], Field(description="NAME[@VERSION], such as huggingface@5.23")]
Directory = Annotated[str | None, Field(description="write the files below it; none: only return")]


class Done(Struct, frozen=True):
    """A command that was run."""

    code: int
    out: str
    err: str


Run = Callable[[Sequence[str]], Done]
_Result = TypeVar("_Result", bound=results.Result)


def server(run: Run, root: Path, version: str) -> MCPServer:
    """The server with all of its tools; `run` runs a command line in this process."""
    made = MCPServer(
        "tunec",
        title="tunec",
        version=version,
        instructions=(
            "tunec plans, checks, translates and compares fine-tuning configs. Call `plan` to see "
            "whether a run fits and what was decided, `explain` for the reason of one decision or "
            "the meaning of a diagnostic, and `lint` before configs that exist are changed."
        ),
    )
    tools = Tools(run, root)
    reading: list[Callable[..., results.Result]] = [
        *(tools.plan, tools.explain, tools.lint, tools.choose, tools.verify, tools.diff)
    ]
    for tool in reading:
        made.tool(annotations=ToolAnnotations(read_only_hint=True))(tool)
    writing: list[Callable[..., results.Result]] = [tools.translate, tools.compile]
    for tool in writing:
        made.tool(annotations=ToolAnnotations(idempotent_hint=True))(tool)
    return made


class Tools:
    """The tools; one runs at a time."""

    def __init__(self, run: Run, root: Path) -> None:
        self._run = run
        self._root = root.resolve()
        self._lock = Lock()

    def plan(
        self,
        spec: Spec,
        hardware: Hardware = None,
        overrides: Overrides = [],  # noqa: B006  never changed, and shown to clients
        targets: Targets = [],  # noqa: B006
    ) -> results.Plan:
        """Whether the run of a spec fits, every decision, memory by term, and time."""
        words = [*_each("--hardware", hardware), *_each("--set", overrides)]
        return self._ask(
            results.Plan, "plan", self._inside(spec), *words, *_each("--target", targets)
        )

    def explain(
        self,
        what: Annotated[str, Field(description="path of a spec, or a diagnostic such as E0701")],
        slot: Annotated[str | None, Field(description="with a spec: such as zero.stage")] = None,
        hardware: Hardware = None,
        overrides: Overrides = [],  # noqa: B006
    ) -> results.Explanation:
        """Why a slot of a spec has its value and what was rejected, or what a diagnostic means."""
        words = [*_each("--hardware", hardware), *_each("--set", overrides)]
        if slot is None:
            return self._ask(results.Explanation, "explain", _word(what))
        found = self._ask(results.Explanation, "explain", self._inside(what), _word(slot), *words)
        few = found.considered[: results.MOST_CONSIDERED]
        return found.model_copy(update={"considered": few})

    def lint(
        self,
        paths: Paths,
        hardware: Hardware = None,
        model: Model = None,
        software: Annotated[list[str], Field(description="such as transformers=4.57")] = [],  # noqa: B006
    ) -> results.Lint:
        """What is wrong with existing trainer files, read together; changes nothing."""
        words = [*_each("--hardware", hardware), *_each("--model", model)]
        words += _each("--software", software)
        return self._ask(results.Lint, "lint", *map(self._inside, paths), *words)

    def choose(
        self,
        spec: Spec,
        hardware: Annotated[list[str], Field(description="clusters to try; none: all known")] = [],  # noqa: B006
        by: Annotated[str, Field(description="cost, time or energy")] = "cost",
        within: Annotated[str | None, Field(description="such as 12h")] = None,
        budget: Annotated[float | None, Field(description="most dollars")] = None,
    ) -> results.Choice:
        """Where a spec runs cheapest, fastest, or with the least energy, at dated prices."""
        words = [*_each("--within", within), *_each("--budget", budget), "--by", _word(by)]
        many = ["--hardware", *map(self._named, hardware)] if hardware else []
        return self._ask(results.Choice, "choose", self._inside(spec), *words, *many)

    def verify(self, spec: Spec, targets: Targets = []) -> results.Verification:  # noqa: B006
        """Hand the files of a spec to the real programs that are here; fetches nothing."""
        words = ["--offline", *_each("--target", targets)]
        return self._ask(results.Verification, "verify", self._inside(spec), *words)

    def diff(
        self,
        old: Annotated[str, Field(description="a spec or trainer file, or revisions: main..")],
        paths: Annotated[list[str], Field(description="the new one; of revisions, where")] = [],  # noqa: B006
        hardware: Annotated[list[str], Field(description="compare on these")] = [],  # noqa: B006
        model: Model = None,
        overrides: Overrides = [],  # noqa: B006
    ) -> results.Difference:
        """What a change of specs or trainer files does to decisions, memory, time and cost."""
        first = _word(old) if ".." in old and not Path(old).exists() else self._inside(old)
        words = [*_each("--hardware", hardware), *_each("--model", model)]
        words += _each("--set", overrides)
        return self._ask(results.Difference, "diff", first, *map(self._inside, paths), *words)

    def translate(
        self,
        paths: Paths,
        to: Annotated[list[str], Field(description="targets such as trl; or spec", min_length=1)],
        directory: Directory = None,
        hardware: Hardware = None,
        model: Model = None,
        overrides: Annotated[list[str], Field(description="SLOT=VALUE")] = [],  # noqa: B006
        without: Annotated[list[str], Field(description="keys to leave out")] = [],  # noqa: B006
    ) -> results.Translation:
        """Existing configs in the words of another trainer or release, or as a spec."""
        place = None if directory is None else self._inside(directory)
        if place is not None and to == ["spec"]:
            place = str(Path(place, "spec.yaml"))
        words = [*_each("--to", to), *_each("-o", place), *_each("--hardware", hardware)]
        words += [
            *_each("--model", model),
            *_each("--set", overrides),
            *_each("--without", without),
        ]
        return self._ask(results.Translation, "translate", *map(self._inside, paths), *words)

    def compile(
        self,
        spec: Spec,
        targets: Targets = [],  # noqa: B006
        directory: Directory = None,
        hardware: Hardware = None,
        overrides: Overrides = [],  # noqa: B006
    ) -> results.Files:
        """The files of a spec for its targets; a directory of them also has the `run.sh`."""
        place = None if directory is None else self._inside(directory)
        words = [*_each("--target", targets), *_each("-o", place), *_each("--hardware", hardware)]
        words += _each("--set", overrides)
        return self._ask(results.Files, "compile", self._inside(spec), *words)

    def _inside(self, path: str) -> str:
        """A path from the server's directory, where it runs. Raises ToolError for one outside."""
        full = Path(self._root, _word(path)).resolve()
        if not full.is_relative_to(self._root):
            shown = printable(path)
            raise ToolError(f"{shown} lies outside of {self._root}, the directory of this server")
        return full.relative_to(self._root).as_posix()

    def _named(self, cluster: str) -> str:
        """The name of a cluster, or a path below the server's directory where it is one."""
        return self._inside(cluster) if Path(self._root, cluster).exists() else _word(cluster)

    def _ask(self, kind: type[_Result], *words: str) -> _Result:
        with self._lock, confined(self._root):
            done = self._run([*words, "--format", "json"])
        if done.code not in _FOUND:
            raise ToolError(done.err.strip() or f"tunec ended with {done.code}")
        found = json.loads(done.out) if done.out.strip() else {}
        data: dict[str, Any] = {"diagnostics": found} if isinstance(found, list) else found
        return kind.model_validate({**data, "ok": done.code == 0, "notes": done.err.strip()})


def _each(flag: str, values: Any) -> list[str]:
    """A flag for each value; nothing where there is none."""
    every = values if isinstance(values, list) else [] if values is None else [values]
    return [word for each in every for word in (flag, _word(str(each)))]


def _word(text: str) -> str:
    """A value on the command line that cannot be taken for a flag."""
    if text.startswith("-") or not text or "\0" in text:
        raise ToolError(f"{text!r} is no value here")
    return text
