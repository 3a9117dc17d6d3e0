"""Sends questions to a consumer script, in a process without access to GPUs or model hubs."""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tunec.compiler.consumers import runner
from tunec.compiler.consumers.environments import Environment
from tunec.compiler.consumers.processes import Script, run

SECONDS: Final = 180.0
"""Time limit of a batch of questions; most of it is for the import of torch and a consumer."""

_ROOT: Final = Path(runner.__file__).parents[2]
_KEPT: Final = (
    "PATH",
    "HOME",
    "TMPDIR",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
)
_SET: Final[dict[str, str]] = {
    "CUDA_VISIBLE_DEVICES": "",
    "DS_ACCELERATOR": "cpu",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONIOENCODING": "utf-8",
    "PYTHONWARNINGS": "ignore",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
}

Reply = Mapping[str, Any]
"""Has the key `answer`, or `fault` (the script's traceback) and the end of the process's
`output`."""


class ConsumerFailed(Exception):
    """The script gave no answer: it crashed, exceeded its time, or raised; nothing was checked.

    `reason` tells which; `output` is the end of what the process printed.
    """

    def __init__(self, script: str, reason: str, output: str) -> None:
        super().__init__(f"{script} {reason}")
        self.reason = reason
        self.output = output


def ask(
    environment: Environment,
    script: str,
    questions: Sequence[Mapping[str, Any]],
    seconds: float = SECONDS,
    root: Path = _ROOT,
) -> list[Any]:
    """Like `ask_each`, but fails if any question has no answer.

    Raises ConsumerFailed.
    """
    answers = ask_each(environment, script, questions, seconds, root)
    for each in answers:
        if isinstance(each, ConsumerFailed):
            raise each
    return answers


def ask_each(
    environment: Environment,
    script: str,
    questions: Sequence[Mapping[str, Any]],
    seconds: float = SECONDS,
    root: Path = _ROOT,
) -> list[Any]:
    """Answer each question with the verb it names, all in one process, in order.

    If a verb itself raises, a ConsumerFailed takes the place of its answer.

    `script` is the dotted name of a module that holds `VERBS`, such as
    `tunec.targets.deepspeed.consumer`. A question is a JSON object with the key `verb`; the answers
    are JSON values. The process has no GPU, no hub and none of our environment variables, and works
    in a temporary directory. `root` is the folder of the package. Raises ConsumerFailed, and
    EnvironmentUnavailable if the environment cannot be made.
    """
    told = replies(environment, script, questions, seconds, root)
    return [_answer(script, each) for each in told]


def replies(
    environment: Environment,
    script: str,
    questions: Sequence[Mapping[str, Any]],
    seconds: float,
    root: Path,
) -> list[Reply]:
    """The process's reply to each question. Takes and raises the same as `ask_each`."""
    with tempfile.TemporaryDirectory(prefix="tunec-") as name:
        folder = Path(name)
        answers, asked, output = (folder / each for each in ("answers.json", "asked", "output"))
        asked.write_text(json.dumps(list(questions)), encoding="utf-8")
        output.touch()
        arguments = (runner.__file__, str(root), script, str(answers))
        work = Script(arguments, _variables(), folder, asked, output, seconds)
        status = run(environment, work)
        said = _end(output)
        if status is None:
            raise ConsumerFailed(script, f"took over {seconds:.0f} s", said)
        if not answers.exists():
            raise ConsumerFailed(script, f"ended with status {status} and no answer", said)
        told = json.loads(answers.read_text(encoding="utf-8"))
        return [each | {"output": said} if "fault" in each else each for each in told]


def _variables() -> dict[str, str]:
    return {name: os.environ[name] for name in _KEPT if name in os.environ} | _SET


def _end(output: Path, most: int = 4000) -> str:
    return output.read_bytes().decode("utf-8", errors="replace")[-most:]


def _answer(script: str, reply: Reply) -> Any:
    if "fault" not in reply:
        return reply["answer"]
    reason = "raised: " + reply["fault"].strip().splitlines()[-1]
    return ConsumerFailed(script, reason, reply["fault"] + reply["output"])
