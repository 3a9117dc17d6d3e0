"""How SkyPilot is run on task.yaml, and the launchers on its command."""

from typing import Any, Final

from tunec.compiler.verify.contract import Answers, Case, Program, Question, TranslatedAnswer, Where
from tunec.compiler.verify.delivery import document
from tunec.schemas.dotted_paths import value_at
from tunec.targets.launch.verify import CONFIG_PROGRAM, Start, launcher_programs
from tunec.targets.skypilot.target import TASK

SCRIPT: Final = "tunec.targets.skypilot.consumer"
_PACKAGE: Final = "skypilot"
_NODE: Final = {"SKYPILOT_NODE_RANK": "0", "MASTER_ADDR": "node0", "HOSTFILE": "hostfile"}
BESIDE: Final = (
    *("colorama==0.4.6", "cachetools==8.0.0", "sqlalchemy==2.1.9"),
    *("aiosqlite==0.22.1", "greenlet==3.5.6", "prometheus-client==0.26.0"),
    *("httpx==0.28.1", "alembic==1.20.1", "mako==1.4.3"),
    *("prettytable==3.18.0", "psycopg2-binary==2.9.13", "passlib==1.7.4"),
    *("ijson==3.6.0", "paramiko==5.1.0", "cryptography==50.0.2"),
    *("cffi==2.1.1", "bcrypt==4.0.1", "pynacl==1.6.2"),
    *("aiohttp==3.14.5", "multidict==7.2.1", "yarl==1.25.1"),
    *("propcache==0.5.4", "aiohappyeyeballs==2.7.1", "aiosignal==1.4.0"),
    *("frozenlist==1.8.0", "fastapi==0.165.0", "starlette==1.10.0"),
    *("opentelemetry-api==1.45.2", "orjson==3.13.0", "casbin==1.43.0"),
    *("simpleeval==1.0.8", "sqlalchemy-adapter==1.9.0"),
)
"""Packages that `sky` imports (`Requires-Dist` of skypilot 0.14.1 and of these)."""


def _on_skypilot(case: Case) -> Where:
    version = str(case.version)
    return Where(_PACKAGE, version, (f"{_PACKAGE}=={version}", *BESIDE))


def _ask(case: Case, _: Answers) -> Question:
    return {"verb": "task", "yaml": case.text(TASK.name)}


def _hear(case: Case, answer: Any) -> TranslatedAnswer:
    keys = (key for row in case.rows(TASK.name) for key in row.keys if key != _WORKDIR)
    return TranslatedAnswer(values={key: value_at(answer["values"], key) for key in keys})


_WORKDIR: Final = "workdir"
"""A key that SkyPilot resolves to a path of its machine."""


def _run(case: Case) -> str:
    text: str = document(TASK, case.delivered[TASK.name])["run"]
    return text


PROGRAMS: Final = (
    Program("sky.Task.from_yaml", TASK.name, SCRIPT, _on_skypilot, _ask, _hear),
    *launcher_programs(Start(TASK.name, _run, _NODE, within="run"), "sky.Task.from_yaml"),
    CONFIG_PROGRAM,
)
