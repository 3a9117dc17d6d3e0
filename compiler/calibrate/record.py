"""The file of a cluster's measured runs: adds a run, and derives the numbers anew."""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final

from tunec.compiler.calibrate.attribution import error, factors, margin
from tunec.compiler.calibrate.observation import Observation
from tunec.compiler.version import __version__
from tunec.compiler.watch.expectation import Expected
from tunec.schemas.hardware.measurements import Measured, Memory, Ran, Seconds

_HEAD: Final = """\
# What runs on {cluster} came to, written by tunec calibrate: {runs}.
# Plans, lint and fleets on this cluster take `factors` and `margin` from here. Remove a run and
# `tunec calibrate {name}` works them out anew.
"""


def ran(
    plan: Expected, seen: Observation, files: Sequence[str], contents: Sequence[bytes], when: str
) -> Ran:
    """One run, compared with its plan; `when` is the day of its files if they do not give one.

    Raises pydantic's ValidationError if the plan cannot be that of the run.
    """
    return Ran(
        name=plan.name,
        when=seen.when or when,
        files=tuple(files),
        digest=_digest(contents),
        versions={**plan.versions, **seen.versions},
        tunec=__version__,
        devices=plan.devices,
        seconds=seconds_of(plan, seen),
        memory=memory_of(plan, seen),
    )


def _digest(contents: Sequence[bytes]) -> str:
    """Sixteen hexadecimal digits of a digest of the files' contents."""
    return sha256(b"".join(sha256(each).digest() for each in contents)).hexdigest()[:16]


_STRANGE: Final = 20.0
"""If a step is this many times longer or shorter than accounted, it ran on other devices."""


def why_another_run(seen: Observation, plan: Expected) -> str | None:
    """Why observations cannot be of a plan's run on its cluster; None if nothing shows this."""
    if seen.device == "cpu":
        return f"it ran on a CPU, and the plan on {plan.cluster}"
    if seen.ranks and seen.ranks != plan.devices:
        several = "" if seen.ranks == 1 else "s"
        return f"it had {seen.ranks} rank{several}, and the plan has {plan.devices}"
    whole, step = plan.step_seconds, _step(seen, plan)
    if step and whole and not whole / _STRANGE < step < whole * _STRANGE:
        return f"a step took {step:.3g} s, and {whole:.3g} s were accounted for"
    return None


def _step(seen: Observation, plan: Expected) -> float | None:
    """Seconds of a step, computed from samples per second if necessary."""
    if seen.seconds is None and seen.samples_per_second:
        return plan.samples / seen.samples_per_second
    return seen.seconds


def seconds_of(plan: Expected, seen: Observation) -> Seconds | None:
    """A step's time; None if it was not observed."""
    measured = _step(seen, plan)
    if measured is None or not plan.seconds:
        return None
    return Seconds(
        measured=_short(measured),
        steps=max(seen.steps, 1),
        accounted={name: _short(value) for name, value in plan.seconds.items()},
        parts={name: _short(value) for name, value in seen.parts.items()},
    )


def _short(value: float) -> float:
    """A number with six digits."""
    return float(f"{value:.6g}")


def memory_of(plan: Expected, seen: Observation) -> Memory | None:
    """The memory peaks; None if none was observed."""
    peaks = (seen.allocated, seen.reserved, seen.used)
    if not any(peaks):
        return None
    return Memory(
        accounted=plan.tensors, allocated=seen.allocated, reserved=seen.reserved, used=seen.used
    )


def with_run(known: Measured | None, run: Ran, cluster: str, beside: Mapping[str, int]) -> Measured:
    """The file with another run, which replaces an earlier one read from the same files."""
    earlier = tuple(each for each in known.runs if each.digest != run.digest) if known else ()
    return derived((*earlier, run), cluster, beside)


def derived(runs: tuple[Ran, ...], cluster: str, beside: Mapping[str, int]) -> Measured:
    """The numbers derived from runs; `beside` are the bytes assumed outside the allocator."""
    found = factors(runs)
    return Measured(
        tunec_measured=1,
        cluster=cluster,
        factors=found,
        margin=margin(runs, beside),
        error=error(runs, found),
        runs=runs,
    )


def text_of(found: Measured, name: str) -> str:
    """The file's text; `name` is the file's name."""
    import yaml

    number = len(found.runs)
    runs = f"{number} run{'' if number == 1 else 's'}"
    data = found.model_dump(mode="json", exclude_defaults=True)
    head = _HEAD.format(cluster=found.cluster, runs=runs, name=name)
    return head + str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100))
