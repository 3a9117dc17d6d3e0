"""Putting questions to a consumer script, in a process that reaches neither GPU nor network hub."""

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
"""How long a batch of questions may take; importing torch and a consumer takes most of it."""

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
"""The key `answer`; or `fault`, the script's traceback, with the end of the process's `output`."""


class ConsumerFailed(Exception):
    """The script did not answer: it crashed, ran past its time, or raised; nothing was checked.

    `reason` says which; `output` is the end of what the process printed.
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
    """As `ask_each`, where one question without an answer is a failure of all.

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

    In the place of an answer stands a ConsumerFailed where the verb itself raised.

    `script` is the dotted name of a module that holds `VERBS`, such as
    `tunec.targets.deepspeed.consumer`. A question is a JSON object with the key `verb`; the answers
    are JSON values. The process sees no GPU, no hub and none of our environment variables, and
    works in a directory that is thrown away. `root` is the folder of the package. Raises
    ConsumerFailed, and EnvironmentUnavailable where the environment cannot be made.
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
    """What the process replied to each question, as `ask_each` says; raises as that does."""
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
