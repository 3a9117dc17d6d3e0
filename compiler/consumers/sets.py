"""Sets of pins that are known to import and work together, one for each consumer release.

A companion is the newest release that the consumer's own metadata (`Requires-Dist` of its wheel on
PyPI) admits, or one of the same season if the metadata sets no bound. tests/consumers builds and
queries every set.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from packaging.version import Version

from tunec.compiler.consumers.environments import EnvironmentUnavailable


@dataclass(frozen=True, slots=True)
class ConsumerSet:
    """One release of a consumer with the packages that it needs."""

    consumer: str
    version: str
    companions: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the set: `transformers@4.40.2`."""
        return f"{self.consumer}@{self.version}"

    @property
    def requirements(self) -> tuple[str, ...]:
        """Exact pins, companions included."""
        return (f"{self.consumer}=={self.version}", *self.companions)


# DeepSpeed needs nothing pinned beside it. The last patch of each minor release from 0.14 on.
# 0.14.0 to 0.14.3 cannot be had with torch 2.13: `deepspeed/elasticity/elastic_agent.py` imports
# `log` (0.14.0) and `_get_socket_with_port` (0.14.1 to 0.14.3) from
# `torch.distributed.elastic.agent.server.api`, which holds neither any more.
_DEEPSPEED: Final = ("0.14.5", "0.15.4", "0.16.9", "0.17.6", "0.18.9", "0.19.8")

# huggingface_hub 0.x speaks through `requests`, 1.x through `httpx`, 2.x through `httpx2`;
# `datasets` must fit it.
_HUB_0: Final = ("huggingface_hub==0.36.2", "datasets==4.0.0")
_HUB_1: Final = ("httpx==0.28.1", "httpcore==1.0.9")

_TRANSFORMERS: Final[Mapping[str, tuple[str, ...]]] = {
    "4.40.2": ("tokenizers==0.19.1", *_HUB_0, "accelerate==0.30.1", "peft==0.10.0", "trl==0.8.6"),
    "4.44.2": ("tokenizers==0.19.1", *_HUB_0, "accelerate==0.33.0", "peft==0.12.0", "trl==0.10.1"),
    "4.46.3": ("tokenizers==0.20.3", *_HUB_0, "accelerate==1.1.1", "peft==0.13.2", "trl==0.12.2"),
    "4.51.3": ("tokenizers==0.21.4", *_HUB_0, "accelerate==1.6.0", "peft==0.15.2", "trl==0.17.0"),
    "4.57.6": ("tokenizers==0.22.2", *_HUB_0, "accelerate==1.12.0", "peft==0.18.1", "trl==0.27.2"),
    "5.0.0": (
        *("tokenizers==0.22.2", "huggingface_hub==1.3.7", "datasets==4.5.0", *_HUB_1),
        *("accelerate==1.12.0", "peft==0.18.1", "trl==0.28.0"),
    ),
    "5.6.2": (
        *("tokenizers==0.22.2", "huggingface_hub==1.12.2", "datasets==4.8.5", *_HUB_1),
        *("accelerate==1.13.0", "peft==0.19.1", "trl==1.3.0"),
    ),
    "5.15.1": (
        *("tokenizers==0.22.2", "huggingface_hub==1.20.1", "datasets==4.8.5", *_HUB_1),
        *("accelerate==1.14.0", "peft==0.20.0", "trl==1.9.2"),
    ),
    "5.23.0": (
        *("tokenizers==0.23.3", "huggingface_hub==2.4.0", "datasets==5.2.0"),
        *("accelerate==1.15.0", "peft==0.21.2", "trl==1.16.0"),
    ),
}

# Releases between these, by (transformers, companions): what `tunec verify` and the nightly tests
# ask besides.
_TRANSFORMERS_BETWEEN: Final[Mapping[str, tuple[str, ...]]] = {
    "4.41.2": ("tokenizers==0.19.1", *_HUB_0, "accelerate==0.30.1", "peft==0.11.1", "trl==0.9.6"),
    "4.53.3": ("tokenizers==0.21.4", *_HUB_0, "accelerate==1.8.1", "peft==0.16.0", "trl==0.20.0"),
    "4.55.4": ("tokenizers==0.21.4", *_HUB_0, "accelerate==1.10.1", "peft==0.17.1", "trl==0.22.2"),
    "5.10.4": (
        *("tokenizers==0.22.2", "huggingface_hub==1.12.2", "datasets==4.8.5", *_HUB_1),
        *("accelerate==1.13.0", "peft==0.19.1", "trl==1.6.0"),
    ),
    "5.18.0": (
        *("tokenizers==0.23.3", "huggingface_hub==2.4.0", "datasets==5.2.0"),
        *("accelerate==1.14.0", "peft==0.20.0", "trl==1.11.0"),
    ),
    "5.24.0": (
        *("tokenizers==0.23.3", "huggingface_hub==2.4.0", "datasets==5.2.0"),
        *("accelerate==1.15.0", "peft==0.21.2", "trl==1.16.0"),
    ),
}
_DEEPSPEED_BETWEEN: Final = (
    *("0.15.0", "0.16.0", "0.16.2", "0.17.0", "0.18.2", "0.18.4", "0.19.3"),
)
_TRL_BETWEEN: Final[Mapping[str, str]] = {"0.19.1": "4.53.3", "0.25.1": "4.57.6"}
"""Releases of trl, each with a different transformers of its time than in the sets above."""

# SimpleTuner: what its parsers, its optimizers and its web server import, and no more. The shared
# layer gives torch, transformers 5.23.0, accelerate, peft and deepspeed, and
# `targets/simpletuner/consumer/shims.py` stands in for the rest. diffusers 0.35.2 imports torchao
# up to 0.14; 4.10.1 asks for torchao 0.17 (`Requires-Dist`) and takes diffusers from the shared
# layer.
_SIMPLETUNER_BESIDE: Final = (
    *("bitsandbytes==0.50.2", "lycoris-lora==4.1.3", "optimum-quanto==0.2.7"),
    *("peft-singlora==0.2.0", "prodigy-plus-schedule-free==2.0.1", "torch-optimi==0.3.3"),
    *("torchvision==0.28.0", "toml==0.10.2", "fastapi==0.165.0", "starlette==1.10.0"),
    *("opentelemetry-api==1.45.2", "ftfy==6.3.1", "wcwidth==0.9.4"),
)
_SIMPLETUNER: Final[Mapping[str, tuple[str, ...]]] = {
    "3.1.6": ("diffusers==0.35.2", "torchao==0.14.1", *_SIMPLETUNER_BESIDE),
    "4.10.1": ("sdnq==0.2.8", "torchao==0.17.0", *_SIMPLETUNER_BESIDE),
}

# accelerate needs nothing pinned beside it. The releases in which a key of its file, or what
# becomes of one, came, went or changed (commands/config/config_args.py, commands/launch.py and
# utils/dataclasses.py of every minor release from 0.30 to 1.15).
_ACCELERATE: Final = (
    *("0.30.1", "0.31.0", "0.34.2", "1.0.1", "1.4.0", "1.6.0", "1.7.0", "1.8.1", "1.10.1"),
    *("1.12.0", "1.13.0", "1.14.0", "1.15.0"),
)


def _trl(known: Mapping[str, tuple[str, ...]]) -> Iterator[ConsumerSet]:
    """Sets of trl with the transformers that fits it: the same environments under another name."""
    for version, companions in known.items():
        (own,) = (pin for pin in companions if pin.startswith("trl=="))
        yield _trl_beside(own.split("==")[1], version, companions)


def _trl_beside(trl: str, transformers: str, companions: tuple[str, ...]) -> ConsumerSet:
    others = (pin for pin in companions if not pin.startswith("trl=="))
    return ConsumerSet("trl", trl, (f"transformers=={transformers}", *others))


def _between() -> Iterator[ConsumerSet]:
    for version in _DEEPSPEED_BETWEEN:
        yield ConsumerSet("deepspeed", version)
    for version, companions in _TRANSFORMERS_BETWEEN.items():
        yield ConsumerSet("transformers", version, companions)
    yield from (each for each in _trl(_TRANSFORMERS_BETWEEN) if each.name not in SETS)
    every = {**_TRANSFORMERS, **_TRANSFORMERS_BETWEEN}
    for trl, beside in _TRL_BETWEEN.items():
        yield _trl_beside(trl, beside, every[beside])


# Axolotl's schema classes import torch, transformers and pydantic, which the shared layer has; its
# integrations' classes import addict.
_AXOLOTL_BESIDE: Final = ("addict==2.4.0",)
_AXOLOTL: Final = ("0.8.1", "0.13.2", "0.19.0")

# LLaMA-Factory with a transformers of the range that its `check_dependencies` asks for, or one with
# the keys of that range's last.
_LLAMAFACTORY: Final[Mapping[str, str]] = {
    "0.9.1": "4.44.2",
    "0.9.3": "4.51.3",
    "0.9.4": "4.57.6",
    "0.9.5": "4.57.6",
}

# A release of it beside a second transformers of its range, whose arguments have other types.
_LLAMAFACTORY_LATER: Final[Mapping[str, str]] = {"0.9.5": "5.6.2"}

# ms-swift with a transformers, peft and trl of the ranges of its wheel. Its parser imports
# modelscope, whose latest releases lie in two distributions, and aiohttp; 4.0 reads its file by
# OmegaConf, which the shared layer has.
_MS_SWIFT_BESIDE: Final = (
    *("modelscope==1.34.0", "json-repair==0.40.0", "simplejson==3.20.1", "zstandard==0.23.0"),
    *("aiohttp==3.12.15", "multidict==6.6.3", "yarl==1.20.1", "aiosignal==1.4.0"),
    *("frozenlist==1.7.0", "propcache==0.3.2", "aiohappyeyeballs==2.6.1", *_HUB_1),
)
_MS_SWIFT: Final[Mapping[str, tuple[str, ...]]] = {
    "4.0.4": (
        *("transformers==4.57.6", "tokenizers==0.22.2", "huggingface_hub==0.36.2"),
        *("datasets==3.6.0", "accelerate==1.12.0", "peft==0.18.1", "trl==0.27.2"),
    ),
    "4.3.2": (
        *("transformers==5.6.2", "tokenizers==0.22.2", "huggingface_hub==1.12.2"),
        *("datasets==4.8.4", "accelerate==1.13.0", "peft==0.19.1", "trl==0.29.1"),
    ),
    "4.6.0": (
        *("transformers==5.15.1", "tokenizers==0.22.2", "huggingface_hub==1.20.1"),
        *("datasets==4.8.4", "accelerate==1.14.0", "peft==0.20.0", "trl==0.29.1"),
    ),
}
# Unsloth's command line, which imports neither torch nor what it trains with.
_UNSLOTH_BESIDE: Final = (
    *("typer==0.29.2", "click==8.5.1", "rich==15.0.0", "shellingham==1.5.4"),
    *("markdown-it-py==4.3.0", "mdurl==0.1.2", "pygments==2.21.0", "structlog==26.1.0"),
)
_UNSLOTH: Final = ("2026.3.18", "2026.7.6", "2026.9.8", "2026.9.14", "2026.10.9")

# verl with a transformers and peft that its wheel admits (below 5.11 from 0.9 on; 0.8 names no
# bound), and what composes its configuration: Hydra asks for OmegaConf below 2.4. Ray, which starts
# its workers, is stood in for.
_VERL_BESIDE: Final = (
    *("hydra-core==1.3.8", "omegaconf==2.3.0", "antlr4-python3-runtime==4.9.3"),
    *("tensordict==0.10.0", "pyvers==0.1.0", "cloudpickle==3.1.2", "orjson==3.11.3"),
    *("importlib_metadata==8.7.0", "zipp==3.23.0", "torchdata==0.11.0", "codetiming==1.4.0"),
)
_VERL: Final[Mapping[str, tuple[str, ...]]] = {
    "0.8.0": ("transformers==4.57.6", *_TRANSFORMERS["4.57.6"]),
    "0.9.0": ("transformers==5.10.4", *_TRANSFORMERS_BETWEEN["5.10.4"]),
    "0.9.1": ("transformers==5.10.4", *_TRANSFORMERS_BETWEEN["5.10.4"]),
}

# OpenRLHF with the transformers and DeepSpeed that its wheel pins, and the loader that it deals
# data with. FlashAttention, which its models import, is stood in for.
_OPENRLHF: Final[Mapping[str, tuple[str, ...]]] = {
    "0.10.4": ("transformers==5.7.0", *_TRANSFORMERS["5.6.2"], "deepspeed==0.19.1"),
    "0.11.0": ("transformers==5.15.0", *_TRANSFORMERS["5.15.1"], "deepspeed==0.19.5"),
    "0.11.2": ("transformers==5.15.0", *_TRANSFORMERS["5.15.1"], "deepspeed==0.19.6"),
}
_OPENRLHF_BESIDE: Final = ("torchdata==0.11.0",)

# NeMo AutoModel with the transformers that its wheel pins, and what its classes import.
_NEMO_AUTOMODEL_BESIDE: Final = ("torchdata==0.11.0", "torchao==0.17.0")
_NEMO_AUTOMODEL: Final[Mapping[str, tuple[str, ...]]] = {
    "0.5.0": ("transformers==5.8.1", *_TRANSFORMERS["5.6.2"]),
    "0.6.0": ("transformers==5.12.1", *_TRANSFORMERS_BETWEEN["5.10.4"]),
    "0.7.0": ("transformers==5.18.0", *_TRANSFORMERS_BETWEEN["5.18.0"]),
}

SETS: Final[Mapping[str, ConsumerSet]] = MappingProxyType(
    {
        known.name: known
        for known in (
            *(ConsumerSet("deepspeed", version) for version in _DEEPSPEED),
            *(ConsumerSet("accelerate", version) for version in _ACCELERATE),
            *(
                ConsumerSet("transformers", version, companions)
                for version, companions in _TRANSFORMERS.items()
            ),
            *_trl(_TRANSFORMERS),
            *(
                ConsumerSet("simpletuner", version, companions)
                for version, companions in _SIMPLETUNER.items()
            ),
            *(ConsumerSet("axolotl", version, _AXOLOTL_BESIDE) for version in _AXOLOTL),
            *(
                ConsumerSet(
                    "llamafactory", version, (f"transformers=={beside}", *_TRANSFORMERS[beside])
                )
                for version, beside in _LLAMAFACTORY.items()
            ),
            *(
                ConsumerSet("ms-swift", version, (*companions, *_MS_SWIFT_BESIDE))
                for version, companions in _MS_SWIFT.items()
            ),
            *(ConsumerSet("unsloth", version, _UNSLOTH_BESIDE) for version in _UNSLOTH),
            *(
                ConsumerSet("verl", version, (*companions, *_VERL_BESIDE))
                for version, companions in _VERL.items()
            ),
            *(
                ConsumerSet("openrlhf", version, (*companions, *_OPENRLHF_BESIDE))
                for version, companions in _OPENRLHF.items()
            ),
            *(
                ConsumerSet("nemo-automodel", version, (*companions, *_NEMO_AUTOMODEL_BESIDE))
                for version, companions in _NEMO_AUTOMODEL.items()
            ),
        )
    }
)
"""Every set that the tests query, by name."""

LATER: Final = tuple(
    ConsumerSet("llamafactory", version, (f"transformers=={beside}", *_TRANSFORMERS[beside]))
    for version, beside in _LLAMAFACTORY_LATER.items()
)
"""Releases beside a later package of their range than in SETS, which only their schemas ask."""

BETWEEN: Final[Mapping[str, ConsumerSet]] = MappingProxyType(
    {known.name: known for known in _between()}
)
"""Sets of releases between those in SETS, by name."""


def choose(consumer: str, version: str) -> ConsumerSet:
    """The known set for a full or partial release: `0.19` means the newest known 0.19.x.

    Raises EnvironmentUnavailable if no set of that release is known, since nothing can be checked
    then.
    """
    wanted = version.split(".")
    known_sets = _of(consumer, (*SETS.values(), *BETWEEN.values()))
    fitting = [known for known in known_sets if known.version.split(".")[: len(wanted)] == wanted]
    if not fitting:
        held = ", ".join(known.version for known in known_sets) or "none"
        raise EnvironmentUnavailable(
            f"{consumer}=={version}", f"no set of packages is known to work (known: {held})"
        )
    return fitting[-1]


def releases(consumer: str) -> tuple[ConsumerSet, ...]:
    """The sets of one consumer that the tests query, oldest first."""
    return _of(consumer, SETS.values())


def _of(consumer: str, sets: Iterable[ConsumerSet]) -> tuple[ConsumerSet, ...]:
    held = (known for known in sets if known.consumer == consumer)
    return tuple(sorted(held, key=lambda known: Version(known.version)))


def together(*sets: ConsumerSet) -> tuple[str, ...]:
    """The pins of several sets together, for a run that reads files of several consumers."""
    return tuple(dict.fromkeys(pin for known in sets for pin in known.requirements))
