"""The software that a run needs: the build of torch with the devices' kernels, and the packages."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from packaging.version import InvalidVersion, Version

from tunec.compiler.facts import Facts
from tunec.compiler.ir.plan import Draft
from tunec.compiler.passes.contract import Scribe, device, slot, spec
from tunec.schemas.hardware.profile import Device
from tunec.schemas.torch_builds import INDEX, USUAL, Build, builds_of, newest_for, spelled

_TORCH: Final = "torch"


def say_software(scribe: Scribe, draft: Draft) -> None:
    """Decide what must be installed; an error if a named torch has no kernels for a device."""
    packages = tuple(_packages(scribe, draft, _torch(scribe, draft)))
    why = (
        "packages that the plan's model, method, engine and targets import, in the releases "
        "that the files are written for"
    )
    rests = (
        slot("parallel.engine"),
        slot("adapter.kind"),
        slot("optimizer.name"),
        slot("runtime.report_to"),
        spec("targets"),
        spec("software"),
    )
    scribe.say("job.packages", packages, why, *rests)


# ── torch ────────────────────────────────────────────────────────────────────────────────────────


def _torch(scribe: Scribe, draft: Draft) -> str | None:
    """Decide the torch that is installed, and its build; None if no wheel is known."""
    devices = scribe.facts.selection.devices
    weakest = scribe.facts.selection.weakest.device
    named = _said(scribe.facts)
    brought = _brought(scribe.facts, draft).get(_TORCH)
    compiled_for = "gfx" if weakest.gfx else "compute_capability"
    rests = (
        spec("software.torch"),
        device(weakest.name, compiled_for),
        slot("parallel.engine"),
        slot("adapter.kind"),
    )
    told, failing = named or brought, _failing(scribe.facts, draft)
    if told is not None and builds_of(told):
        build = _of_release(scribe, told, devices)
    else:
        build = newest_for(weakest.vendor, weakest.kernels, failing)
    why = _why(build, weakest, named, brought, failing)
    value = _version(build, told) if build is not None else None
    scribe.say("job.torch", value, why, *rests)
    is_said = named is not None and bool(_local(named))
    if build is not None and not build.is_usual and build.vendor == "nvidia" and not is_said:
        _from_another_index(scribe, build, weakest)
    return value


def _said(facts: Facts) -> str | None:
    """The torch that somebody names; of launchers the usual one is asked without that."""
    told = facts.versions.get(_TORCH)
    is_said = _TORCH in facts.spec.software or _TORCH in facts.cluster.software
    return told if is_said or told != USUAL else None


_COUNTING_GROUPS: Final = "2.10"
"""The first torch whose schedules count the optimizer's groups (optim/lr_scheduler.py
`LRScheduler._update_lr`, `zip(..., strict=True)`). DeepSpeed drops the group without decay that
transformers 4 makes for adapters, and which is empty: the first step fails with ValueError
(hiyouga/LlamaFactory#10144; run with transformers 4.57.6, deepspeed 0.18.4 and 0.18.9)."""


_SLOW_CONVOLUTIONS: Final = "2.9"
"""The torch that runs convolutions over three dimensions many times slower than 2.8 and 2.10 do
(pytorch/pytorch#166122); LLaMA-Factory 0.9.5 refuses it for such models."""


def _failing(facts: Facts, draft: Draft) -> str:
    """The first release of torch with which the run would fail; empty: none is known."""
    if draft.parallel.engine != "deepspeed" or not _drops_a_group(facts, draft):
        return ""
    modules = facts.model.architecture.modules
    is_slow = any(each.kind == "conv" and len(each.shape) == _CONV3D for each in modules)
    return _SLOW_CONVOLUTIONS if is_slow else _COUNTING_GROUPS


_CONV3D: Final = 5
"""The dimensions of the weight of a convolution over time, height and width."""


def _drops_a_group(facts: Facts, draft: Draft) -> bool:
    """Whether DeepSpeed would take a group of adapters out of the optimizer."""
    transformers = _brought(facts, draft).get("transformers", "")
    return draft.adapter.kind != "none" and transformers.startswith("4.")


def loses_its_schedule(facts: Facts, draft: Draft) -> bool:
    """Whether the run fails under DeepSpeed with the torch that the spec or a package takes."""
    told = _said(facts) or _brought(facts, draft).get(_TORCH)
    is_counting = told is not None and _is_at_least(told, _COUNTING_GROUPS)
    return is_counting and _drops_a_group(facts, draft)


def _is_at_least(release: str, first: str) -> bool:
    """Whether a release is another one or newer; False for what is no version."""
    try:
        return Version(release) >= Version(first)
    except InvalidVersion:
        return False


_OF_ENGINES: Final[Mapping[tuple[str, str], Mapping[str, str]]] = {
    ("vllm", "0.11.0"): {_TORCH: "2.8.0"},
    ("vllm", "0.12.0"): {_TORCH: "2.9.0"},
    ("vllm", "0.20.2"): {_TORCH: "2.11.0"},
    ("vllm", "0.23.0"): {_TORCH: "2.11.0"},
    ("vllm", "0.24.0"): {_TORCH: "2.11.0"},
    ("vllm", "0.28.0"): {_TORCH: "2.13.0"},
    ("vllm", "0.30.0"): {_TORCH: "2.13.0"},
    ("vllm", "0.31.0"): {_TORCH: "2.13.0"},
    ("sglang", "0.5.8"): {_TORCH: "2.9.1", "transformers": "4.57.1"},
    ("sglang", "0.5.14"): {_TORCH: "2.11.0", "transformers": "5.8.1"},
}
"""Packages that a generation engine pins: `Requires-Dist` of its wheels."""


def _brought(facts: Facts, draft: Draft) -> Mapping[str, str]:
    """The release of each package: named, pinned by the engine, or the requested targets'."""
    said = {**facts.releases, **facts.versions}
    if _said(facts) is None and said.get(_TORCH) == USUAL:
        del said[_TORCH]
    return {**said, **_pinned(draft, said), **facts.spec.software}


def _pinned(draft: Draft, releases: Mapping[str, str]) -> Mapping[str, str]:
    """Releases that the plan's generation engine pins; empty if it pins none."""
    engine = draft.generation.engine.partition("_")[0]
    return _OF_ENGINES.get((engine, releases.get(engine, "")), {})


def _version(build: Build, named: str | None) -> str:
    """A build's version with the named patch; a minor release alone means its newest patch."""
    plain = None if named is None else named.partition("+")[0]
    release = plain if plain is not None and _is_patch(plain) else build.release
    return f"{release}+{build.name}"


def _local(named: str) -> str:
    """The build that a version names: `cu126` of `2.13.0+cu126`."""
    return named.partition("+")[2]


def _is_patch(text: str) -> bool:
    try:
        return len(Version(text).release) > 2
    except InvalidVersion:
        return False


def _of_release(scribe: Scribe, named: str, devices: tuple[Device, ...]) -> Build | None:
    """The first build of a named release with kernels for every device; an error if there is none.

    PyTorch publishes no builds for Gaudi and Ascend; their vendors do.
    """
    local = _local(named)
    known = tuple(each for each in builds_of(named) if local in ("", each.name))
    fitting = (b for b in known if all(b.runs_on(d.vendor, d.kernels) for d in devices))
    found = next(fitting, None)
    weakest = scribe.facts.selection.weakest.device
    own = tuple(each for each in known if each.vendor == weakest.vendor)
    if found is None and (own or weakest.vendor == "nvidia"):
        _refuse(scribe, named, weakest, own)
    return found


def _refuse(scribe: Scribe, named: str, weakest: Device, known: tuple[Build, ...]) -> None:
    other = newest_for(weakest.vendor, weakest.kernels)
    every = {each for build in known for each in build.kernels}
    kernels = map(spelled, sorted(every, key=lambda each: () if isinstance(each, str) else each))
    scribe.error(
        "E0607",
        f"torch {named} has no kernels for {weakest.title} ({_capability(weakest)})",
        "software.torch",
        notes=(
            f"its wheels have kernels for {', '.join(kernels)}",
            *dict.fromkeys(build.source for build in known),
        ),
        help=f"use torch {other.release}, whose build {other.name} includes them"
        if other
        else None,
    )


def _capability(each: Device) -> str:
    capability = each.compute_capability
    return each.gfx or (f"compute capability {spelled(capability)}" if capability else each.vendor)


def _why(
    build: Build | None, weakest: Device, named: str | None, brought: str | None, failing: str
) -> str:
    if build is None:
        return f"no official PyTorch wheel is known for {weakest.title}"
    if named is not None or brought is not None:
        who = "that the spec names" if named is not None else "that the job's other packages take"
        return f"the release {who}; its build {build.name} has kernels for {weakest.title}"
    taken = "the usual release" if build.release == USUAL else "the newest release"
    if failing:
        slow = " (2.9 runs its Conv3d slowly)" if failing == _SLOW_CONVOLUTIONS else ""
        until = f"before {_COUNTING_GROUPS}, from which on adapters fail under DeepSpeed"
        taken = f"the newest release {until}{slow},"
    return f"{taken} with kernels for {weakest.title}"


def _from_another_index(scribe: Scribe, build: Build, weakest: Device) -> None:
    usual = next(each for each in builds_of(build.release) if each.is_usual)
    scribe.report(
        "torch-from-another-index",
        "note",
        f"torch {build.release} from PyPI ({usual.name}) has no kernels for {weakest.title} "
        f"({_capability(weakest)}); its build {build.name} has",
        "hardware",
        notes=(build.source,),
        help=f"pip install torch=={build.version} --index-url {INDEX}/{build.name}",
    )


# ── the rest ─────────────────────────────────────────────────────────────────────────────────────


def _reports_to(tracker: str, draft: Draft) -> bool:
    return tracker in draft.runtime.report_to


_IMPORTED: Final[Mapping[str, Callable[[Draft], bool]]] = {
    "transformers": lambda draft: draft.model.kind != "diffusion",
    "diffusers": lambda draft: draft.model.kind == "diffusion",
    "accelerate": lambda _: True,
    "peft": lambda draft: draft.adapter.kind != "none",
    "deepspeed": lambda draft: draft.parallel.engine == "deepspeed",
    "bitsandbytes": lambda draft: (
        draft.quantization.format != "none" or draft.optimizer.kernel == "bitsandbytes"
    ),
    "liger-kernel": lambda draft: draft.loss.path == "fused",
    "vllm": lambda draft: draft.generation.engine.startswith("vllm"),
    "sglang": lambda draft: draft.generation.engine.startswith("sglang"),
    **{name: partial(_reports_to, name) for name in ("wandb", "tensorboard", "mlflow")},
}
"""Distributions, and whether a plan's run imports them. Few trainers require those of trackers,
without which the run stops (transformers 5.23.0 integrations/integration_utils.py)."""
_OF_FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "smolvlm": ("num2words",),
    **dict.fromkeys(("fast_vlm", "gemma3n", "perception_lm"), ("timm",)),
}
"""Packages that transformers imports for a family without requiring them: transformers 5.23.0
models/smolvlm/processing_smolvlm.py `SmolVLMProcessor.__init__`,
models/timm_wrapper/modeling_timm_wrapper.py."""
_FLASH: Final = "flash-attn"
"""It is compiled on installation, so it precedes the packages that require it."""
_TRAINERS: Final = (
    *("axolotl", "llamafactory", "ms-swift", "nemo-automodel", "openrlhf", "unsloth", "verl"),
    *("trl", "simpletuner", "llama-cookbook", "SwissArmyTransformer"),
)
"""Distributions that a target is written for and that it installs."""
_REQUIRING: Final = frozenset({"openrlhf"})
"""Trainers whose wheels require FlashAttention, whatever the plan's attention."""


def _packages(scribe: Scribe, draft: Draft, torch: str | None) -> Iterator[str]:
    """The requirements for pip, with a release if one is named or follows from the files."""
    releases = {**_beside(torch), **_brought(scribe.facts, draft)}
    told = scribe.facts.imports
    trainers = [name for name in _TRAINERS if name in releases]
    is_flash = _REQUIRING & {*trainers} or draft.attention.implementation == "flash_attention_2"
    first = (_FLASH,) if is_flash else ()
    usual = (name for name, is_said in _IMPORTED.items() if is_said(draft))
    further = (
        *_OF_FAMILIES.get(draft.model.family, ()),
        *(name for of in told for name in of(draft)),
    )
    for name in dict.fromkeys((*first, *trainers, *usual, *further)):
        yield _named(name, releases)


_OF_ANY_TORCH: Final = "2.11"
"""The first torchaudio that requires no torch, so that pip takes it beside an older one, with which
its import fails: its library asks for libcudart.so.13. Those before require the torch of their
number (`Requires-Dist` and wheels of torchaudio 2.9.1, 2.10.0 and 2.11.0)."""


def _beside(torch: str | None) -> Mapping[str, str]:
    """The release of torchaudio that belongs to a torch, where it is bound to one."""
    release = (torch or "").partition("+")[0]
    is_bound = bool(release) and not _is_at_least(release, _OF_ANY_TORCH)
    return {"torchaudio": release} if is_bound else {}


_EXTRAS: Final[Mapping[str, str]] = {"unsloth": "[studio]"}
"""Extras that a distribution's command imports: unsloth 2026.9.8 to 2026.10.9
unsloth_cli/_studio_deps.py, which ends `unsloth train` if they are missing."""


def _named(name: str, releases: Mapping[str, str]) -> str:
    said = f"{name}{_EXTRAS.get(name, '')}"
    return f"{said}=={releases[name]}" if name in releases else said
