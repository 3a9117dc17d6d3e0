"""How bash and the launchers check launch.sh and accelerate.yaml.

No line of the script is run: bash parses it, its last command is split into words, and the
launcher's own parser gets them.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any, Final

from msgspec import Struct
from packaging.version import Version

from tunec.compiler.consumers.environments import EnvironmentUnavailable
from tunec.compiler.consumers.sets import choose, releases
from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Found, Json
from tunec.compiler.verify.contract import (
    Answers,
    Case,
    Fact,
    NotAsked,
    Program,
    Question,
    TranslatedAnswer,
    Where,
)
from tunec.compiler.verify.delivery import values_of
from tunec.schemas.dotted_paths import flat
from tunec.schemas.frozen import replace
from tunec.targets.accelerate.config import ACCELERATE_CONFIG
from tunec.targets.accelerate.packages import PACKAGE
from tunec.targets.deepspeed.config import DEEPSPEED
from tunec.targets.deepspeed.reader import PACKAGE as DEEPSPEED_PACKAGE
from tunec.targets.deepspeed.verify import SCRIPT as DEEPSPEED_SCRIPT
from tunec.targets.launch.script import found_in, launched_words, parse
from tunec.targets.launch.target import LAUNCH_SH

SCRIPT: Final = "tunec.targets.launch.consumer"
_TORCH: Final = "torch"
_SH, _YAML = LAUNCH_SH.name, ACCELERATE_CONFIG.name

NODE: Final[Mapping[str, str]] = {"NODE_RANK": "0", "MASTER_ADDR": "node0"}
"""Variables that the cluster sets on the first of several nodes."""


def on_bash(_: Case) -> Where:
    """The machine's own bash."""
    return Where("bash", "", ())


def _on_torch(case: Case) -> Where:
    """The interpreter's own torch, if the case names that release, or none."""
    there = Version(metadata.version("torch")).base_version
    of_torch = case.target.package == _TORCH
    named = str(case.version) if of_torch else case.software.get(_TORCH, there)
    if there != named:
        raise EnvironmentUnavailable(f"torch=={named}", f"the interpreter has {there}")
    return Where("torch", there, ())


def _on_deepspeed(case: Case) -> Where:
    version = case.software.get(DEEPSPEED_PACKAGE) or DEEPSPEED.latest
    known = choose(DEEPSPEED_PACKAGE, str(DEEPSPEED.release(version)))
    return Where(DEEPSPEED_PACKAGE, known.version, known.requirements)


def _on_accelerate(case: Case) -> Where:
    """The set that holds the release of accelerate, or that release alone."""
    version = str(case.dialect[PACKAGE])
    pin = f"{PACKAGE}=={version}"
    sets = [known for known in releases("transformers") if pin in known.companions]
    return Where(PACKAGE, version, sets[-1].requirements if sets else (pin,))


# ── launch.sh ────────────────────────────────────────────────────────────────────────────────────


def bash_program(
    name: str, places: Callable[[str, str], Mapping[str, Found]] = found_in
) -> Program:
    """bash for the launch script of that name, of any target.

    The variables and the launcher of the script are found by tunec's own shell parser, as are the
    launcher's arguments if it has no parser.
    """

    def ask(case: Case, _: Answers) -> Question:
        return {"verb": "shell", "text": case.text(name)}

    def hear(case: Case, _: Any) -> TranslatedAnswer:
        said: Mapping[str, Json] = values_of(case, name)
        parsed = said.get("launcher") != "python"  # by a parser of its own
        heard = ("environment", "launcher") if parsed else ("environment", "launcher", "script")
        values = {key: said[key] for key in heard if key in said}
        return TranslatedAnswer(values={**_absent(case, name), **_spread(values)})

    return Program("bash -n", name, SCRIPT, on_bash, ask, hear, places=places)


def _spread(values: Mapping[str, Json]) -> dict[str, Json]:
    """The values by dotted path, and the variables also as one mapping."""
    return {**flat(values), "environment": values.get("environment", {})}


def _absent(case: Case, name: str) -> dict[str, Json]:
    """Keys that are unset if the script lacks them, since nothing else could set them."""
    keys = (key for row in case.rows(name) for key in row.keys)
    return {key: None for key in keys if key.partition(".")[0] in ("environment", "launcher")}


def _command(
    launcher: str, verb: str, skipped: int, start: "Start"
) -> Callable[[Case, Answers], Question | None]:
    """The question for a launcher's parser, if the script starts that launcher."""

    def question(case: Case, _: Answers) -> Question | None:
        text = start.text(case)
        if parse(text).get("launcher") != launcher:
            return None
        words = launched_words(text, start.file, start.given)
        if any("$" in word and "BASH_SOURCE" not in word for word in words):
            raise NotAsked(f"the command has variables that only the cluster knows: {words}")
        return {"verb": verb, "argv": list(words[skipped:]), **case.machine()}

    return question


def _hear_torchrun(_: Case, answer: Any) -> TranslatedAnswer:
    said = answer["values"]
    script = [said["training_script"], *said["training_script_args"]]
    counts = {"nodes": _number(said["nnodes"]), "per_node": _number(said["nproc_per_node"])}
    return TranslatedAnswer(values={**counts, "script": script})


def _number(text: Any) -> Any:
    """A count as a number; a range of nodes or a word like `gpu` stays a text."""
    return int(text) if str(text).isdigit() else text


def _hear_deepspeed(case: Case, answer: Any) -> TranslatedAnswer:
    values = answer["values"]
    spread = case.plan.devices.nodes > 1 and values["num_nodes"] > 1
    nodes = values["num_nodes"] if spread else 1
    chosen = [str(slot) for slot in answer["slots"]]
    return TranslatedAnswer(
        values={
            "nodes": nodes,
            "per_node": len(chosen),
            "script": [values["user_script"], *values["user_args"]],
            "include": chosen if values["include"] else None,
        }
    )


def _hear_accelerate(_: Case, answer: Any) -> TranslatedAnswer:
    said = answer["values"]
    return TranslatedAnswer(
        values={"script": [said["training_script"], *said["training_script_args"]]}
    )


# ── accelerate.yaml ──────────────────────────────────────────────────────────────────────────────


def _config(case: Case, _: Answers) -> Question:
    return {"verb": "config", "yaml": case.text(_YAML)}


def _hear_config(_: Case, answer: Any) -> TranslatedAnswer:
    return TranslatedAnswer(values=flat(answer["values"]))


class Start(Struct, frozen=True):
    """A file with a shell text that starts a launcher."""

    file: str
    text: Callable[[Case], str]
    given: Mapping[str, str]
    """Variables that the cluster sets on the first node, some by a command's output."""
    within: str = ""
    """The key that holds the text, if the file has others; the parsed values are then facts, not
    keys."""
    own: Callable[[Sequence[str]], Sequence[str]] = list
    """The words that the key `script` has, among the script's words."""

    def hear(
        self, heard: Callable[[Case, Any], TranslatedAnswer]
    ) -> Callable[[Case, Any], TranslatedAnswer]:
        """The answer of a launcher's parser under the keys of the file."""

        def hear(case: Case, answer: Any) -> TranslatedAnswer:
            found = heard(case, answer)
            if self.within:
                return TranslatedAnswer(facts=tuple(self._facts(case.plan, found.values)))
            words = list(self.own(found.values["script"]))
            return replace(found, values={**found.values, "script": words})

        return hear

    def _facts(self, plan: Plan, values: Mapping[str, Any]) -> Iterator[Fact]:
        script = shlex.join(values["script"])
        yield Fact("launch.script", self.within, plan.launch.script, script)
        if "per_node" in values:
            world = values["nodes"] * values["per_node"]
            yield Fact("parallel.world", self.within, plan.parallel.world, world)


def launcher_programs(start: Start, after: str) -> tuple[Program, ...]:
    """The launchers' parsers, for the command in a file that another program reads first."""

    def program(name: str, script: str, where: Callable[[Case], Where], how: Any) -> Program:
        launcher, verb, skipped, hear = how
        question = _command(launcher, verb, skipped, start)
        return Program(name, start.file, script, where, question, start.hear(hear), after=after)

    return (
        program("torchrun", SCRIPT, _on_torch, ("torchrun", "torchrun", 1, _hear_torchrun)),
        program(
            "deepspeed launcher",
            DEEPSPEED_SCRIPT,
            _on_deepspeed,
            ("deepspeed", "arguments", 1, _hear_deepspeed),
        ),
        program(
            "accelerate launch",
            SCRIPT,
            _on_accelerate,
            ("accelerate", "accelerate", 2, _hear_accelerate),
        ),
    )


CONFIG_PROGRAM: Final = Program(
    "accelerate config", _YAML, SCRIPT, _on_accelerate, _config, _hear_config
)
"""The check by accelerate's loader, for every target that writes its file."""

PROGRAMS: Final = (
    bash_program(_SH),
    *launcher_programs(Start(_SH, lambda case: case.text(_SH), NODE), "bash -n"),
    CONFIG_PROGRAM,
)
