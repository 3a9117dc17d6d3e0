"""The glm4 target: the scripts' YAML, DeepSpeed's file, and the command that starts them."""

from collections.abc import Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Draft, Plan
from tunec.compiler.start_commands import Start
from tunec.compiler.target import Entry, Json, Target, on_deepspeed
from tunec.schemas.spec import Spec
from tunec.targets.deepspeed.config import DEEPSPEED, ds_config
from tunec.targets.deepspeed.reader import PACKAGE, TRAINER
from tunec.targets.glm4.configuration import CONFIGURATION, NAME
from tunec.targets.glm4.refusals import REFUSALS
from tunec.targets.glm4.versions import RELEASES
from tunec.targets.huggingface.counting import counting
from tunec.targets.huggingface.packages import PEFT, PEFT_RELEASES, companions
from tunec.targets.huggingface.target import TARGET as HUGGINGFACE
from tunec.targets.huggingface.target import compute_dtype
from tunec.targets.huggingface.training import optimizer_packages
from tunec.targets.scripts.command import Style, commander, starting
from tunec.targets.scripts.file import command_file, own_script, script_row, started
from tunec.targets.scripts.refusals import refusing
from tunec.targets.trainers import reading_one_part

_README: Final = "zai-org/GLM-4 da2fe37, f6ee34e and 3f79b54, README: DATA_DIR MODEL_DIR CONFIG"
_SCRIPTS: Final[Mapping[str, str]] = {
    "vision-language": "finetune_vision.py",
    "causal-lm": "finetune.py",
}
_HERE: Final = "."
"""The script's DATA_DIR: paths of data are used as they are in the plan."""


def _script(plan: Plan) -> str:
    return _SCRIPTS.get(plan.model.kind, "")


def _write(plan: Plan) -> Mapping[str, Json]:
    script = _script(plan)
    return {"script": [started(plan, script), _HERE, plan.model.path, NAME]} if script else {}


def _read_path(found: Mapping[str, Json]) -> Mapping[str, Any]:
    return {"model.path": found["script"][2]}


def _read_kind(found: Mapping[str, Json]) -> Mapping[str, Any]:
    name = found["script"][0].rpartition("/")[2]
    kinds = [kind for kind, script in _SCRIPTS.items() if script == name]
    return {"model.kind": kinds[0]} if kinds else {}


_COMMAND: Final = (
    *starting("python", "torchrun", "deepspeed"),
    script_row(_script, _README),
    Entry(("script",), ("model.kind",), _write, _read_kind, _README),
    Entry(("script",), ("model.path",), _write, _read_path, _README),
)


def _is_command(document: Json) -> bool:
    words = document.get("script") if isinstance(document, dict) else None
    if not isinstance(words, list) or not words:
        return False
    return str(words[0]).rpartition("/")[2] in _SCRIPTS.values()


def _needs(spec: Spec, draft: Draft) -> Mapping[str, Any]:
    """Pin that evaluation generates answers, if there is evaluation data and no metric is set."""
    found = draft.groups.get("data")
    asked = (spec.data if found is None else found).evaluation
    if asked is None or spec.evaluation.metrics:
        return {}
    return {"evaluation.predictions": "answers"}


_IMPORTS: Final = (*("datasets", "jieba", "nltk==3.8.1", "rouge_chinese"), "ruamel.yaml", "typer")
"""zai-org/GLM-4 3f79b54, finetune_demo/requirements.txt, and the imports of finetune.py."""
SCRIPT_NAME: Final = "launch.sh"
STYLE: Final = Style()

TARGET: Final = Target(
    name="glm4",
    package="transformers",
    supported=RELEASES.supported,
    latest=RELEASES.latest,
    releases=RELEASES.releases,
    files=(
        CONFIGURATION,
        command_file(SCRIPT_NAME, _COMMAND, STYLE, _is_command, names=("script",)),
        ds_config(TRAINER, when=on_deepspeed),
    ),
    cannot={
        **HUGGINGFACE.cannot,
        **reading_one_part("finetune.py of GLM-4"),
        "launch.script": own_script("glm4"),
    },
    needs=_needs,
    check=refusing("glm4", REFUSALS),
    beside={PEFT: PEFT_RELEASES, PACKAGE: DEEPSPEED},
    companions=companions,
    imports=lambda draft, version: (*_IMPORTS, *optimizer_packages(draft, version)),
    together=compute_dtype,
    starts=(Start(("bash",), SCRIPT_NAME, repository="zai-org/GLM-4 (finetune_demo)"),),
    command=commander(STYLE),
    counting=counting,
    verify="tunec.targets.glm4.verify",
)
