"""How SimpleTuner is run on a folder, and how its answers are read."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tunec.compiler.ir.plan import Plan, training_data
from tunec.compiler.target import Json
from tunec.compiler.verify.contract import (
    Answers,
    Case,
    Program,
    Question,
    TranslatedAnswer,
    Where,
    facts,
    known_environment,
)
from tunec.schemas.dotted_paths import flat
from tunec.targets.deepspeed.config import NAME as DS_CONFIG
from tunec.targets.deepspeed.verify import WORDS, engine_programs
from tunec.targets.simpletuner.rows.environment import PASSED_ON
from tunec.targets.simpletuner.rows.run import DATA_FILE
from tunec.targets.simpletuner.schema import CONSUMER, SECONDS

_CONFIG, _ENV = "config/config.json", "config/config.env"
_PARSER, _LAUNCHER, _LOADER, _PLUGIN = (
    "simpletuner parser and checks",
    "simpletuner train",
    "simpletuner data loader",
    "simpletuner DeepSpeed plugin",
)
_FLAGS: Final[Mapping[str, str]] = {
    "--mixed_precision": "MIXED_PRECISION",
    "--num_processes": "TRAINING_NUM_PROCESSES",
    "--num_machines": "TRAINING_NUM_MACHINES",
}
"""The variable of each flag that `simpletuner train` passes to accelerate."""


def where(case: Case) -> Where:
    """The set of the release of SimpleTuner."""
    return known_environment("simpletuner", case.version)


def _folder(case: Case) -> dict[str, Any]:
    """The folder that SimpleTuner reads; the data folders are empty."""
    data = case.plan.data
    named = (*training_data(case.plan), *data.references, data.evaluation)
    return {
        "files": {name: each.text for name, each in case.delivered.items()},
        "folders": [each for each in dict.fromkeys(named) if each and "." not in each],
    }


def _resolve(case: Case, _: Answers) -> Question:
    processes = {"processes": case.plan.parallel.world}
    return {"verb": "resolve", "backend": "json", **case.machine(), **processes, **_folder(case)}


def _refusal(answer: Mapping[str, Any]) -> str:
    fault = answer.get("error")
    return f"{fault['stage']}: {fault['message']}" if fault else ""


_NOT_FLAGS: Final = ("deepspeed", "data")
"""Stages of SimpleTuner that read other files than config.json."""


def _turned_down(_: Case, answer: Any) -> TranslatedAnswer | None:
    said = _refusal(answer)
    return TranslatedAnswer(refused=said) if said else None


def _flags_turned_down(case: Case, answer: Any) -> TranslatedAnswer | None:
    fault = answer.get("error")
    return None if fault and fault["stage"] in _NOT_FLAGS else _turned_down(case, answer)


def _hear_config(case: Case, answer: Any) -> TranslatedAnswer:
    plan, parsed = case.plan, answer["parsed"]
    pairs: list[tuple[str, str, Any, Any]] = [
        (
            "states.weights",
            "mixed_precision",
            WORDS[plan.states.weights],
            parsed.get("weight_dtype"),
        ),
        (
            "quantization.format",
            "base_model_precision",
            plan.quantization.format != "none",
            parsed.get("is_quantized"),
        ),
    ]
    known = [pair for pair in pairs if pair[3] is not None]
    return TranslatedAnswer(values=flat(parsed), facts=facts(known))


def _data_turned_down(case: Case, answer: Any) -> TranslatedAnswer | None:
    fault = answer.get("error")
    if fault and fault["stage"] != "data":
        return TranslatedAnswer(
            unchecked=f"SimpleTuner refused config.json before ({fault['message']})"
        )
    return _turned_down(case, answer)


def _hear_data(case: Case, answer: Any) -> TranslatedAnswer:
    data, plan = answer["data"], case.plan
    broken = [f"{each['field']}: {each['message']}" for each in data["rules"]]
    if broken:
        return TranslatedAnswer(refused="; ".join(broken))
    return TranslatedAnswer(facts=facts(_data(data["backends"], plan)))


def _data(backends: Any, plan: Plan) -> list[tuple[str, str, Any, Any]]:
    """Folders, sizes and purposes; a size by area is in megapixels, of a million pixels each."""
    kinds = [each["dataset_type"] for each in backends]
    trained = [each["config"] for each in backends if each["dataset_type"] in ("image", "video")]
    folders = [
        each.get("instance_data_dir") for each in trained for _ in range(each.get("repeats", 0) + 1)
    ]
    side = (trained[0].get("resolution", 0) * 1e6) ** 0.5 if trained else 0
    frames = [each.get("video", {}).get("num_frames", 0) for each in trained]
    return [
        ("data.train", "[0].instance_data_dir", plan.data.train, next(iter(folders), None)),
        ("data.more", "[0].repeats", list(plan.data.more), folders[1:]),
        ("data.image_width", "[0].resolution", plan.data.image_width, round(side)),
        ("data.frames", "[0].video", {plan.data.frames}, set(frames)),
        ("data.references", "[2]", list(plan.data.references), _given(backends)),
        ("data.evaluation", "[2]", plan.data.evaluation is not None, "eval" in kinds),
    ]


def _given(backends: Any) -> list[Any]:
    """The folders of the reference images."""
    sets = (each for each in backends if each["dataset_type"] == "conditioning")
    return [each["config"].get("instance_data_dir") for each in sets]


def _launch(case: Case, _: Answers) -> Question:
    return {"verb": "launch", **_folder(case), **case.machine()}


def _hear_launch(case: Case, answer: Any) -> TranslatedAnswer:
    given = dict(each.split("=", 1) for each in answer["command"] if "=" in each)
    flags = {name: given[flag] for flag, name in _FLAGS.items() if flag in given}
    said = answer["environment"]
    passed = {name: said.get(name) for name in PASSED_ON}
    keys = {key: None for row in case.rows(_ENV) for key in row.keys}
    return TranslatedAnswer(values={**keys, **passed, **flags})


def _hear_plugin(_: Case, answer: Any) -> TranslatedAnswer:
    if answer["deepspeed"] is None:
        return TranslatedAnswer(refused="config.json names no deepspeed_config")
    return TranslatedAnswer(values=flat(answer["deepspeed"]))


def _configured(_: Case, answers: Answers) -> Json:
    answer = answers.get(_PLUGIN)
    return None if answer is None or _refusal(answer) else answer["deepspeed"]


def _program(
    name: str,
    file: str,
    question: Callable[[Case, Answers], Question],
    hear: Callable[[Case, Any], TranslatedAnswer],
    unheard: Callable[[Case, Any], TranslatedAnswer | None] = _turned_down,
) -> Program:
    return Program(name, file, CONSUMER, where, question, hear, seconds=SECONDS, unheard=unheard)


PROGRAMS: Final = (
    _program(_PARSER, _CONFIG, _resolve, _hear_config, _flags_turned_down),
    _program(_LAUNCHER, _ENV, _launch, _hear_launch),
    _program(_LOADER, DATA_FILE, _resolve, _hear_data, _data_turned_down),
    _program(_PLUGIN, DS_CONFIG, _resolve, _hear_plugin),
    *engine_programs(_configured, after=_PLUGIN),
)
