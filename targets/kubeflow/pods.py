"""A pod's image, volumes and bundle files; and what is missing from a plan for them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import yaml
from packaging.version import Version

from tunec.compiler.diagnostics.diagnostic import Diagnostic, Label
from tunec.compiler.diagnostics.wording import joined
from tunec.compiler.ir.plan import Plan
from tunec.compiler.target import Artifact, Dialect, File, Json, in_no_plan, on_deepspeed
from tunec.targets.launch.node_setup import dns_label, is_built_on_torch, local_files

_CUDA: Final = re.compile(r"cu(\d{2})(\d)")
_PYTORCH: Final = re.compile(
    r"pytorch/pytorch:([\d.]+)-cuda(\d{2})\.(\d)-cudnn\d+-(?:runtime|devel)"
)
_GAUDI: Final = (
    "vault.habana.ai/gaudi-docker/1.22.0/ubuntu22.04/habanalabs/pytorch-installer-2.7.1:latest"
)
"""The image in Intel Gaudi documentation 1.22, Docker Installation."""


def usual_image(plan: Plan) -> str | None:
    """PyTorch's own image for the plan's torch, or the vendor's; None if none is known.

    pytorch/pytorch .github/scripts/generate_docker_release_matrix.py: one for each CUDA release of
    the wheels, as `runtime` and as `devel`. DeepSpeed compiles its kernels on first use (0.14.5 to
    0.19.8 op_builder/builder.py `installed_cuda_version`: CUDA_HOME), and flash-attn is compiled
    when it is installed; `devel` has the compiler for both.
    """
    if plan.devices.vendor == "intel":
        return _GAUDI
    release, _, build = (plan.job.torch or "").partition("+")
    cuda = _CUDA.fullmatch(build)
    if cuda is None:
        return None
    compiles = on_deepspeed(plan) or any(map(is_built_on_torch, plan.job.packages))
    kind = "devel" if compiles else "runtime"
    return f"pytorch/pytorch:{release}-cuda{cuda[1]}.{cuda[2]}-cudnn9-{kind}"


def torch_of(image: str) -> str | None:
    """The torch in an image of PyTorch's own; None for another image."""
    found = _PYTORCH.fullmatch(image)
    return f"{found[1]}+cu{found[2]}{found[3]}" if found else None


def image_of(plan: Plan) -> str | None:
    """The image of the spec, or else the usual one."""
    return plan.job.image or usual_image(plan)


def read_image(image: str) -> Mapping[str, Any]:
    """The image, and its torch if the image is PyTorch's own."""
    torch = torch_of(image)
    return {"job.image": image or None, **({"job.torch": torch} if torch else {})}


HOME: Final = "/workspace"
"""The directory beside the bundle, to which a spec's paths are relative."""
BUNDLE: Final = "/bundle"
"""The path at which the ConfigMap is mounted."""
_SHARED: Final = "shared-memory"
_OWN: Final = "workspace"
_FILES: Final = "bundle"
_MOUNTS: Final[Json] = [
    {"name": _SHARED, "mountPath": "/dev/shm"},  # noqa: S108  of the pod
    {"name": _FILES, "mountPath": BUNDLE, "readOnly": True},
    {"name": _OWN, "mountPath": HOME},
]


def config_map(plan: Plan) -> str:
    """The name of the ConfigMap with the bundle's files."""
    return f"{dns_label(plan.job.name)}-bundle"


def volumes(plan: Plan) -> list[Json]:
    """Shared memory, the bundle, and the claim or, without one, a volume that the pod loses.

    Data loading processes and collectives pass tensors through shared memory, by default 64 MiB.
    """
    claim = plan.job.volume
    own = {"persistentVolumeClaim": {"claimName": claim}} if claim else {"emptyDir": {}}
    return [
        {"name": _SHARED, "emptyDir": {"medium": "Memory"}},
        {"name": _FILES, "configMap": {"name": config_map(plan)}},
        {"name": _OWN, **own},
    ]


def mounts() -> list[Json]:
    """The paths of the volumes in the container."""
    return list(_MOUNTS)


def read_claim(listed: Sequence[Json]) -> Mapping[str, Any]:
    """The mounted claim; None if there is none, and nothing if there are several."""
    found = list(_claims(listed))
    return {} if len(found) > 1 else {"job.volume": found[0] if found else None}


def _claims(listed: Sequence[Json]) -> Iterator[str]:
    for each in listed:
        if "persistentVolumeClaim" in each:
            yield each["persistentVolumeClaim"]["claimName"]


_SUFFIX: Final = "-bundle"


def _is_bundle(document: Json) -> bool:
    if not isinstance(document, dict) or document.get("kind") != "ConfigMap":
        return False
    return str(document.get("metadata", {}).get("name", "")).endswith(_SUFFIX)


def _texts(document: Json) -> Mapping[str, str]:
    """The files by their paths, from which `key_of` made the keys."""
    held = document.get("data") or {}
    return {str(key).replace(_SLASH, "/"): text for key, text in held.items()}


BUNDLE_YAML: Final = File("bundle.yaml", "yaml", (), _is_bundle, when=in_no_plan, holds=_texts)
"""The file that holds the texts of the other files; no row writes it."""

_SLASH: Final = "__"


def key_of(path: str) -> str:
    """A path as a key of a ConfigMap's `data`, which has no slashes; see `unpacked`."""
    return path.replace("/", _SLASH)


def bundle_yaml(plan: Plan, texts: Mapping[str, str]) -> Artifact:
    """The files of the run by their paths below the bundle's root, as one ConfigMap.

    The manifests of this target are left out, because they are applied beside it.
    """
    metadata = {"name": config_map(plan)}
    if plan.job.namespace is not None:
        metadata["namespace"] = plan.job.namespace
    values = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {key_of(path): text for path, text in texts.items() if _is_read(path)},
    }
    text: str = yaml.dump(values, Dumper=_Blocks, sort_keys=False, allow_unicode=True, width=2**31)
    return Artifact(BUNDLE_YAML.name, BUNDLE_YAML.format, text, values)


def _is_read(path: str) -> bool:
    return not path.startswith("kubeflow/") or path.endswith("/accelerate.yaml")


class _Blocks(yaml.SafeDumper):
    """A dumper that writes multi-line text as blocks."""


def _text(dumper: yaml.SafeDumper, text: str) -> Any:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Blocks.add_representer(str, _text)


_DEADLINES: Final = Version("2.2")
_CLAIM: Final = "name a claim whose root holds what lies beside the spec: `job: {volume: ...}`"


def lacking(plan: Plan, dialect: Dialect) -> Iterator[Diagnostic]:
    """A diagnostic for each missing thing without which the job cannot start or is useless."""
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
    """An error for files above the spec's own directory, which the claim stands for."""
    beyond = tuple(each for each in local_files(plan) if each.startswith("../../"))
    if beyond:
        yield Diagnostic(
            "E0905",
            "error",
            f"{joined(beyond, 'and')} lies outside of what a pod mounts",
            (Label("requested here", path="targets"),),
            help="write the bundle into a directory beside the files that it reads",
        )
