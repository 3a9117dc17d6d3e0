"""Questions to programs, answered from what is recorded: a plugin of pytest.

`--asking` says how: `replay` asks for real what is not recorded, and says so in the end; `record`
asks that and keeps it; `anew` asks everything and fails where an answer is not the recorded one. A
test marked `real` is always asked for real, and nothing of it is kept. Only what a test asks
in its own process is answered so: the product itself always asks.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from tests.recording import traces
from tests.recording.digests import digest, of_trace
from tests.recording.places import ROOT, Places
from tests.recording.stale import is_found
from tests.recording.store import Answer, every, read, write

from tunec.compiler.consumers import queries
from tunec.compiler.consumers.environments import Environment, EnvironmentUnavailable
from tunec.compiler.consumers.queries import Reply
from tunec.targets.scripts import sources

MODES: Final = ("replay", "record", "anew")
_ASK: Final = queries.replies
_OBTAIN: Final = sources.obtain


class Recording:
    """What is asked in this process, and by which module of tests."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.module = ""
        self.is_real = False
        self.new: dict[str, dict[str, Answer]] = {}
        self.incomplete: set[str] = set()
        self.asked: Counter[str] = Counter()
        self.differing: list[str] = []
        self.unavailable: dict[str, EnvironmentUnavailable] = {}
        """Scripts that this machine cannot fetch, by the path where they would be kept."""

    # ── the seam ──────────────────────────────────────────────────────────────────────────────────

    def replies(
        self,
        environment: Environment,
        script: str,
        questions: Sequence[Mapping[str, Any]],
        seconds: float,
        root: Path,
    ) -> list[Reply]:
        """In the place of `queries.replies`."""
        if self.is_real:
            return _ASK(environment, script, questions, seconds, root)
        places = [Places(environment) for _ in questions]
        texts = [
            each.named(json.dumps(question, ensure_ascii=False))
            for each, question in zip(places, questions, strict=True)
        ]
        keys = [digest(environment.requirements, script, root, each) for each in texts]
        known = {key: found for key in keys if (found := self._recorded(key)) is not None}
        missing = [at for at, key in enumerate(keys) if key not in known or self.mode == "anew"]
        new: dict[int, Reply] = {}
        if missing:
            asked = [questions[at] for at in missing]
            self._refuse_unavailable(json.dumps(asked))
            told = _ASK(environment, script, asked, seconds, root)
            new = dict(zip(missing, told, strict=True))
        self.new.setdefault(self.module, {}).update(known)
        for at, reply in new.items():
            named = places[at].named(json.dumps(reply, ensure_ascii=False))
            answer = Answer(script, environment.requirements, texts[at], named)
            self._heard(keys[at], answer, known.get(keys[at]))
        return [
            new[at] if at in new else json.loads(places[at].put_back(known[key].reply))
            for at, key in enumerate(keys)
        ]

    def obtain(
        self, source: sources.Source, clones: Iterable[Path] = (), cache: Path | None = None
    ) -> Path:
        """In the place of `sources.obtain`: a recorded answer needs no script.

        One that cannot be had is asked for once: without a network each attempt takes a while.
        """
        needs_it = self.is_real or self.mode == "anew" or cache is not None
        place = sources.place_of(source, cache)
        if str(place) in self.unavailable and not needs_it:
            return place
        try:
            return _OBTAIN(source, clones, cache)
        except EnvironmentUnavailable as unavailable:
            if needs_it:
                raise
            self.unavailable[str(place)] = unavailable
            return place

    def tell(self, script: str, file: Path, question: str, trace: Callable[[], str]) -> str:
        """In the place of `traces.teller.tell`."""
        key = of_trace(traces.pins(), file, f"{script} {question}")
        known = self._recorded(key)
        if known is not None and self.mode != "anew" and not self.is_real:
            self.new.setdefault(self.module, {})[key] = known
            return known.reply
        reply = trace()
        if not self.is_real:
            self._heard(key, Answer(script, traces.pins(), question, reply), known)
        return reply

    def _refuse_unavailable(self, asked: str) -> None:
        for place, unavailable in self.unavailable.items():
            if place in asked:
                raise unavailable

    def _recorded(self, key: str) -> Answer | None:
        return read(self.module).get(key) or every().get(key)

    def _heard(self, key: str, answer: Answer, before: Answer | None) -> None:
        self.asked[self.module] += before is None
        self.new.setdefault(self.module, {})[key] = answer
        if self.mode == "anew" and before is not None and before.reply != answer.reply:
            told = f"{self.module}: {answer.script}: {answer.question}"
            self.differing.append(f"{told}\n{_apart(before.reply, answer.reply)}")

    # ── whose turn it is ──────────────────────────────────────────────────────────────────────────

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.module = item.path.relative_to(ROOT).as_posix()
        self.is_real = item.get_closest_marker("real") is not None
        self.new.setdefault(self.module, {})
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        return (yield from _or_skipped())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        return (yield from _or_skipped())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.incomplete.add(report.nodeid.partition("::")[0])

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        left_out = (each for each in items if each.get_closest_marker("nightly") is None)
        self.incomplete |= {each.path.relative_to(ROOT).as_posix() for each in left_out}

    # ── the end ───────────────────────────────────────────────────────────────────────────────────

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.mode == "record":
            self.keep(any("::" in each for each in session.config.invocation_params.args))
        told = getattr(session.config, "workeroutput", None)
        if told is not None:
            told["recording"] = {"asked": dict(self.asked), "differing": self.differing}
        elif self.differing:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def keep(self, is_part: bool) -> None:
        """Write what was asked; the rest goes if all tests passed, or if no question finds it."""
        for module, new in self.new.items():
            before = read(module)
            is_whole = not is_part and module not in self.incomplete
            stays = {} if is_whole else {k: v for k, v in before.items() if is_found(module, k, v)}
            if {**stays, **new} != before:
                write(module, {**stays, **new})

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """In the process that leads the others: what one of them says in the end."""
        told = getattr(node, "workeroutput", {}).get("recording", {})
        self.asked.update(told.get("asked", {}))
        self.differing.extend(told.get("differing", ()))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.mode == "replay" and self.asked:
            terminalreporter.section("asked for real, since no answer is recorded (`just record`)")
            for module, count in sorted(self.asked.items()):
                terminalreporter.line(f"{module}: {count}")
        if self.differing:
            terminalreporter.section("answers that are not the recorded ones")
            for each in self.differing:
                terminalreporter.line(each)


def _apart(before: str, now: str, around: int = 60) -> str:
    """Two texts from a little before they part."""
    parted = (at for at, pair in enumerate(zip(before, now, strict=False)) if len(set(pair)) > 1)
    at = max(next(parted, min(len(before), len(now))) - around, 0)
    return f"    was {before[at : at + 2 * around]!r}\n    now {now[at : at + 2 * around]!r}"


def _or_skipped() -> Iterator[None]:
    """A test whose consumer cannot be had here is skipped, with the reason."""
    try:
        return (yield)
    except EnvironmentUnavailable as unavailable:
        pytest.skip(f"not checked: {unavailable}")


def add_option(parser: pytest.Parser) -> None:
    """The option that says how programs are asked."""
    parser.addoption("--asking", choices=MODES, default=MODES[0], help="how programs are asked")


def begin(config: pytest.Config) -> None:
    """Stand between the tests of this process and the programs."""
    recording = Recording(config.getoption("--asking"))
    queries.replies = recording.replies
    sources.obtain = recording.obtain
    traces.teller.tell = recording.tell  # type: ignore[method-assign]
    config.pluginmanager.register(recording, "recording")
