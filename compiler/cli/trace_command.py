"""`tunec trace`: run a plan's real model without weights, and compare the memory account."""

import importlib.util
import json
import os
import traceback
import warnings
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tunec.compiler.analyses.architecture.classifiers import for_task
from tunec.compiler.analyses.memory.account import Account, account
from tunec.compiler.cli.inputs import planned
from tunec.compiler.cli.session import INPUT, OK, Session
from tunec.compiler.derived_cards import KEY, hub_config
from tunec.compiler.driver import Planned
from tunec.compiler.frontend.names import is_path
from tunec.compiler.tracing.calibration import calibration_json
from tunec.compiler.tracing.comparison import Comparison, compare
from tunec.compiler.tracing.recording import Trace
from tunec.compiler.tracing.report import trace_json, trace_text
from tunec.compiler.tracing.subject import Subject, Untraceable
from tunec.compiler.writing import write_all
from tunec.schemas.frozen import replace
from tunec.schemas.models.catalogue import UnknownName, card
from tunec.schemas.spec import InlineModel
from tunec.schemas.terms import STEPS_IN_BACKWARD

_INSTALL: Final = (
    "install tunec[trace], which includes torch, transformers, diffusers, peft, lomo-optim"
)


def run(options: Namespace, session: Session) -> int:
    """Plan one spec, trace the plan's model, and print both."""
    result = planned(options, session)
    session.diagnose(result.diagnostics, result.loaded.sources)
    try:
        comparison = beside(result)
        saved = _saved(options.save, subject_of(result, comparison.account), comparison.trace)
    except Untraceable as reason:
        return _refuse(str(reason), session, result)
    if session.format == "json":
        found = [each.to_json() for each in result.diagnostics]
        session.json({**trace_json(comparison), "diagnostics": found})
    else:
        session.tell(trace_text(comparison))
    for path in write_all(saved):
        session.note(f"wrote {path}")
    return OK


def beside(result: Planned) -> Comparison:
    """A plan's layout, traced and accounted for.

    Raises Untraceable if there is no plan, a package is missing, or the model cannot be run.
    """
    if result.memory is None:
        raise Untraceable("there is no plan to trace")
    if result.memory.workload.critic is not None:
        raise Untraceable("the critic of PPO has turns with the model, which are not traced")
    subject = subject_of(result, result.memory)
    absent = [name for name in needed(subject) if importlib.util.find_spec(name) is None]
    if absent:
        raise Untraceable(f"{' and '.join(absent)} cannot be imported: {_INSTALL}")
    return compare(traced(subject), account(subject.workload, subject.layout))


def _refuse(reason: str, session: Session, result: Planned) -> int:
    if session.format == "json":
        found = [each.to_json() for each in result.diagnostics]
        session.json({"trace": None, "refused": reason, "diagnostics": found})
    else:
        session.note(f"tunec trace: {reason}")
    return INPUT


def traced(subject: Subject) -> Trace:
    """Trace a subject without showing the libraries' own warnings.

    Raises Untraceable, also for exceptions of the libraries that run the real model.
    """
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("DEEPSPEED_LOG_LEVEL", "error")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tunec.compiler.tracing.live.single_process import run as run_trace

        try:
            return run_trace(subject)
        except Untraceable:
            raise
        except Exception as fault:
            if _is_own(fault):
                raise
            words = str(fault).strip().partition("\n")[0]
            raise Untraceable(
                f"the real model of {subject.family!r} cannot be run so: "
                f"{type(fault).__name__}: {words} ({_raised_in(fault)})"
            ) from fault


def _is_own(fault: Exception) -> bool:
    """Whether tunec's own code raised the exception, and not a library that runs the model."""
    return _last_file(fault).is_relative_to(Path(__file__).resolve().parents[1])


def _raised_in(fault: Exception) -> str:
    return "/".join(_last_file(fault).parts[-3:])


def _last_file(fault: Exception) -> Path:
    return Path(traceback.extract_tb(fault.__traceback__)[-1].filename).resolve()


def needed(subject: Subject) -> tuple[str, ...]:
    """The packages that a trace of a subject imports."""
    names = ["torch", "diffusers" if "_class_name" in subject.config else "transformers"]
    names += ["peft"] if subject.is_adapted else []
    is_lomo = subject.workload.optimizer.name in STEPS_IN_BACKWARD
    names += ["lomo_optim"] if is_lomo else []
    names += ["deepspeed"] if subject.layout.parallel.engine == "deepspeed" else []
    return tuple(names)


def subject_of(result: Planned, memory: Account) -> Subject:
    """What a plan runs: its model's config, its workload and its layout."""
    spec = result.loaded.spec
    if spec is None:
        raise ValueError("a plan without a spec")  # the driver makes none
    config = for_task(config_of(spec.model, result.loaded.base), spec.head)
    alone = replace(memory.workload, calibration=None, shares_host_memory=False)
    return Subject(config, alone, memory.layout)


def config_of(model: str | InlineModel, base: Path) -> Mapping[str, Any]:
    """The config.json of a spec's model: inline, in a file, or on a card."""
    if isinstance(model, InlineModel):
        return _read(base / model.config) if isinstance(model.config, str) else model.config
    if is_path(model, base):
        return _read(base / model)
    try:
        return card(model).config
    except UnknownName:
        place = hub_config(model)
        if place is None:
            raise
        return _read(place)


def _read(path: Path) -> Mapping[str, Any]:
    file = path / "config.json" if path.is_dir() else path
    found: Mapping[str, Any] = json.loads(file.read_text("utf-8"))
    return found["config"] if KEY in found else found


def _saved(path: str | None, subject: Subject, trace: Trace) -> dict[Path, str]:
    """The calibration to write, which needs a second trace with one more sample."""
    if path is None:
        return {}
    further = subject.with_micro(subject.layout.batch.micro + 1)
    more = traced(further) if further.is_padded == subject.is_padded else None
    text = json.dumps(calibration_json(subject, trace, more), indent=2)
    return {Path(path): text + "\n"}
