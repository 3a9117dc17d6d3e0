"""The questions to Kubeflow's packages about manifests, and to launchers about their commands."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from tunec.compiler.target import File, Json
from tunec.compiler.verify.contract import Answers, Case, Program, Question, TranslatedAnswer, Where
from tunec.compiler.verify.delivery import document
from tunec.schemas.dotted_paths import value_at
from tunec.targets.kubeflow.container import command_text
from tunec.targets.kubeflow.target import API, OPERATOR, PYTORCHJOB, TRAINJOB
from tunec.targets.launch.verify import CONFIG_PROGRAM, Start, launcher_programs

SCRIPT: Final = "tunec.targets.kubeflow.consumer"
_NODE: Final = {
    "PET_NODE_RANK": "0",
    **{f"{before}MASTER_ADDR": "node0" for before in ("", "PET_")},
    **{f"{before}MASTER_PORT": "29500" for before in ("", "PET_")},
}
CLIENT: Final = (
    *("kubernetes==34.1.0", "six==1.17.0", "python-dateutil==2.9.0.post0", "retrying==1.4.2"),
    *("websocket-client==1.9.0", "google-auth==2.38.0", "requests-oauthlib==2.0.0"),
    *("oauthlib==3.3.1", "durationpy==0.10", "pyasn1==0.6.1", "pyasn1-modules==0.4.2"),
    *("rsa==4.9.1", "cachetools==5.5.2"),
)
"""The imports of `kubeflow.training` (`Requires-Dist` of kubeflow-training 1.9.4 and of these)."""


def _on_api(case: Case) -> Where:
    return Where(API, str(case.version), (f"{API}=={case.version}",))


def _on_operator(case: Case) -> Where:
    version = str(case.dialect[OPERATOR])
    return Where(OPERATOR, version, (f"{OPERATOR}=={version}", *CLIENT))


def _ask(file: File, verb: str) -> Callable[[Case, Answers], Question]:
    return lambda case, _: {"verb": verb, "yaml": case.text(file.name)}


def _hear(file: File) -> Callable[[Case, Any], TranslatedAnswer]:
    def hear(case: Case, answer: Any) -> TranslatedAnswer:
        written = document(file, case.delivered[file.name])
        values = {
            key: value_at(answer["values"], key) for row in case.rows(file.name) for key in row.keys
        }
        ignored = tuple(_dropped(written, answer["values"], ""))
        return TranslatedAnswer(values=values, ignored=ignored)

    return hear


def _dropped(written: Json, held: Json, path: str) -> Iterator[str]:
    """Keys of the manifest that the model does not know, and so would not send."""
    if isinstance(written, dict):
        for key, value in written.items():
            below = f"{path}.{key}" if path else key
            if not isinstance(held, dict) or key not in held:
                yield below
            else:
                yield from _dropped(value, held[key], below)
    elif isinstance(written, list) and isinstance(held, list):
        for at, (mine, kept) in enumerate(zip(written, held, strict=False)):
            yield from _dropped(mine, kept, f"{path}[{at}]")


def _trainjob_text(case: Case) -> str:
    trainer = document(TRAINJOB, case.delivered[TRAINJOB.name])["spec"]["trainer"]
    return command_text(trainer["args"])


PROGRAMS: Final = (
    Program(
        "kubeflow-trainer-api TrainJob",
        TRAINJOB.name,
        SCRIPT,
        _on_api,
        _ask(TRAINJOB, "trainjob"),
        _hear(TRAINJOB),
    ),
    Program(
        "kubeflow-training PyTorchJob",
        PYTORCHJOB.name,
        SCRIPT,
        _on_operator,
        _ask(PYTORCHJOB, "pytorchjob"),
        _hear(PYTORCHJOB),
    ),
    *launcher_programs(
        Start(TRAINJOB.name, _trainjob_text, _NODE, within="spec.trainer.args"),
        "kubeflow-trainer-api TrainJob",
    ),
    CONFIG_PROGRAM,
)
