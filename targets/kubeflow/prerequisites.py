"""What a pod lacks: files of the user's that nothing brings, an image, a place for the output."""

from collections.abc import Iterator
from typing import Final

from packaging.version import Version

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import joined
from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Dialect
from tunec.targets.kubeflow.images import image_of
from tunec.targets.launch.node_setup import local_files

_DEADLINES: Final = Version("2.2")
_CLAIM: Final = "name a claim whose root holds what lies beside the spec: `job: {volume: ...}`"


def lacking(plan: Plan, dialect: Dialect) -> Iterator[Diagnostic]:
    """A fault for each thing without which the job cannot start, or is of no use."""
    if plan.job.time_limit is not None and dialect[""] < _DEADLINES:
        yield _no_deadline()
    if image_of(plan) is None:
        yield _no_image(plan)
    if plan.job.volume is None:
        files = local_files(plan)
        yield _no_files(files) if files and plan.job.image is None else _not_kept(plan)
    else:
        yield from _too_far(plan)


def _no_deadline() -> Diagnostic:
    return Diagnostic(
        "E0905",
        "error",
        f"a TrainJob of Kubeflow Trainer before {_DEADLINES} has no time at which it is ended",
        (Label("requested here", path="job.time"),),
        ("kubeflow/trainer v2.2.1 TrainJobSpec `activeDeadlineSeconds`",),
        help="leave job.time out, or name a later release of the target",
    )


def _no_image(plan: Plan) -> Diagnostic:
    return Diagnostic(
        "E0905",
        "error",
        f"no container image is known whose torch has kernels for {plan.devices.model}",
        (Label("decided here", path="devices.model"),),
        help="name one: `job: {image: ...}`",
    )


def _no_files(files: tuple[str, ...]) -> Diagnostic:
    return Diagnostic(
        "E0905",
        "error",
        f"nothing brings {joined(files, 'and')} into a pod",
        (Label("requested here", path="targets"),),
        ("a pod has its image, the bundle's own files, and what it mounts",),
        help=f"{_CLAIM}; or an image that holds them: `job: {{image: ...}}`",
    )


def _not_kept(plan: Plan) -> Diagnostic:
    return Diagnostic(
        "output-not-kept",
        "warning",
        f"the checkpoints in {plan.runtime.output} are gone with the pod: it mounts no volume",
        (Label("requested here", path="targets"),),
        help=_CLAIM,
    )


def _too_far(plan: Plan) -> Iterator[Diagnostic]:
    """The claim stands for the spec's own directory, and for nothing above it."""
    beyond = tuple(each for each in local_files(plan) if each.startswith("../../"))
    if beyond:
        yield Diagnostic(
            "E0905",
            "error",
            f"{joined(beyond, 'and')} lies outside of what a pod mounts",
            (Label("requested here", path="targets"),),
            help="write the bundle into a directory beside the files that it reads",
        )
