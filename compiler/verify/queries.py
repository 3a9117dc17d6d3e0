"""Runs every question of every case, in as few processes as there are environments."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from msgspec import Struct

from tunec.compiler.consumers.environments import EnvironmentUnavailable, prepare
from tunec.compiler.consumers.queries import ConsumerFailed, ask_each
from tunec.compiler.verify.check import Check, check, missing, unchecked
from tunec.compiler.verify.contract import Case, NotAsked, Program, Question, Where

Progress = Callable[[str], None]
"""Called with a line about the work that is starting."""

_SHARED: Final = "torch"
"""The package that every environment shares with the interpreter that runs tunec."""


class _Task(Struct, eq=False):
    """One program for one case: its question and environment, or its finished check."""

    case: Case
    program: Program
    answers: dict[str, Any]
    """The case's answers so far, shared by the case's tasks."""
    where: Where | None = None
    question: Question | None = None
    check: Check | None = None


def programs(case: Case) -> tuple[Program, ...]:
    """The programs that read the files of a case's target; empty if none are known."""
    if not case.target.verify:
        return ()
    found: tuple[Program, ...] = import_module(case.target.verify).PROGRAMS
    return found


def verify(
    cases: Sequence[Case], progress: Progress = lambda _: None, seconds: float | None = None
) -> tuple[Check, ...]:
    """Give every file of every case to the programs that read it; no check is left out.

    `seconds` limits all questions of one environment, instead of the program's own limit. Missing
    environments are created. Returns when all programs have answered or run out of time; an
    interruption ends the running process.
    """
    tasks = [each for case in cases for each in _tasks(case)]
    pending = tasks
    while pending:
        waiting = {(id(task.answers), task.program.name) for task in pending}
        wave = [t for t in pending if (id(t.answers), t.program.after) not in waiting]
        if not wave:
            raise ValueError(f"{pending[0].program.name!r} comes after itself")
        _ask(wave, progress, seconds)
        pending = [task for task in pending if task not in wave]
    unread = (each for case in cases for each in _unread(case))
    return (*(task.check for task in tasks if task.check is not None), *unread)


def _unread(case: Case) -> Iterator[Check]:
    """Files that no program checks; they are reported, since silence would look like a pass."""
    read = {program.file for program in programs(case)}
    consumer = f"{case.target.package}@{case.version}"
    for name in case.expected:
        if name not in read:
            path = case.delivered[name].path if name in case.delivered else name
            reason = f"no program is known that checks files of {case.target.name}"
            yield Check(case.spec, path, case.target.package, consumer, "unchecked", reason=reason)


def _tasks(case: Case) -> Iterator[_Task]:
    answers: dict[str, Any] = {}
    for program in programs(case):
        if program.file in case.delivered:
            yield _Task(case, program, answers)
        elif program.file in case.expected and not program.after:
            path = f"{case.target.name}/{program.file}"
            yield _Task(case, program, answers, check=missing(case, program, path))


def _ask(wave: Iterable[_Task], progress: Progress, seconds: float | None) -> None:
    """Run the tasks of a wave, with one process for each environment and script."""
    groups: dict[tuple[tuple[str, ...], str], list[_Task]] = {}
    for task in wave:
        if task.check is None and _prepare(task) and task.where is not None:
            pins = tuple(sorted(task.where.pins))  # one environment, whoever's set it is
            groups.setdefault((pins, task.program.script), []).append(task)
    for at, ((pins, script), tasks) in enumerate(sorted(groups.items(), key=lambda g: g[0]), 1):
        where = tasks[0].where
        progress(f"[{at}/{len(groups)}] {where.name if where else script}: {_count(tasks)}")
        limit = seconds or max(task.program.seconds for task in tasks)
        replies = _replies(pins, script, tasks, limit)
        for task, reply in zip(tasks, replies, strict=True):
            _hear(task, reply)


def _count(tasks: Sequence[_Task]) -> str:
    return f"{len(tasks)} question{'' if len(tasks) == 1 else 's'}"


def _prepare(task: _Task) -> bool:
    """Whether there is a question to ask; if not, the task has its check or needs none."""
    try:
        if find_spec(_SHARED) is None:
            raise EnvironmentUnavailable(_SHARED, "it is not installed alongside tunec")
        task.question = task.program.question(task.case, task.answers)
        if task.question is not None:
            task.where = task.program.where(task.case)
    except (NotAsked, EnvironmentUnavailable) as fault:
        task.check = unchecked(task.case, task.program, _consumer(task), str(fault))
        return False
    return task.question is not None


def _consumer(task: _Task) -> str:
    """The consumer's name if there is no environment that sets its release."""
    try:
        return task.program.where(task.case).name
    except EnvironmentUnavailable:
        return f"{task.case.target.package}@{task.case.version}"


def _replies(
    pins: tuple[str, ...], script: str, tasks: Sequence[_Task], seconds: float
) -> list[Any]:
    """Each task's answer, or the exception that prevented it; equal questions are asked once."""
    asked: dict[str, Mapping[str, Any]] = {
        _key(task): task.question for task in tasks if task.question is not None
    }
    try:
        found = ask_each(prepare(pins), script, list(asked.values()), seconds)
    except (EnvironmentUnavailable, ConsumerFailed) as fault:
        return [fault] * len(tasks)
    told = dict(zip(asked, found, strict=True))
    return [told[_key(task)] for task in tasks]


def _key(task: _Task) -> str:
    return json.dumps(task.question, sort_keys=True)


def _hear(task: _Task, reply: Any) -> None:
    if task.where is None:
        return
    if isinstance(reply, EnvironmentUnavailable | ConsumerFailed):
        task.check = unchecked(task.case, task.program, task.where.name, str(reply))
        return
    task.answers[task.program.name] = reply
    task.check = check(task.case, task.program, task.where, task.program.heard(task.case, reply))
