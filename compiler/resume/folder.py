"""Reads a checkpoint's folder: the names of its files, its JSON, and headers of safetensors."""

import json
import re
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct

from tunec.compiler.diagnostics.wording import shortened
from tunec.compiler.resume.pickles import attributes, number, objects

Kind = Literal[
    "deepspeed", "universal", "fsdp-sharded", "fsdp-full", "trainer", "accelerate", "weights"
]
"""The optimizer states that it holds: ZeRO's by rank, ZeRO's by parameter, FSDP's by rank or whole,
those of the plain Trainer or of accelerate, or none."""

_ZERO: Final = re.compile(r"(?:bf16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt")
_MODEL: Final = re.compile(r"(zero_pp_rank_\d+_)?mp_rank_(\d+)_model_states\.pt")
_RANDOM: Final = re.compile(r"(?:rng_state|random_states)_(\d+)\.(?:pth|pkl)")
_FSDP: Final = re.compile(r"pytorch_model_fsdp(?:_\d+)?")
_LONGEST: Final = 1000
"""Most bytes of a file that holds a name."""
_MOST_SIDE: Final = 2**40
_HEADER: Final = 2**27
"""Most bytes of a safetensors header; the format's own limit is 100 MB."""
_HEADS: Final = ("lm_head.weight", "output_layer.weight", "embed_out.weight")


class NoCheckpoint(Exception):
    """The folder holds no checkpoint; the message says why."""

    def __init__(self, why: str, help: str | None = None) -> None:
        super().__init__(why)
        self.help = help


class Weights(Struct, frozen=True):
    """The tensors of safetensors files."""

    parameters: int
    dtypes: tuple[str, ...]
    head: int = 0
    """Elements of an output projection with the embedding's shape, which may be tied to it."""


class Progress(Struct, frozen=True):
    """The progress of a run, by `trainer_state.json`."""

    step: int
    max_steps: int
    epochs: float
    """Finished passes over the data."""
    num_epochs: float
    micro: int | None
    """Samples that a device takes at once."""
    rate: float | None
    """The last logged learning rate."""


class Settings(Struct, frozen=True):
    """The settings in `training_args.bin`, read without unpickling classes."""

    accumulation: int | None = None
    micro: int | None = None
    rate: float | None = None
    seed: int | None = None


class Checkpoint(Struct, frozen=True):
    """The content of a folder."""

    path: Path
    kind: Kind
    tag: str = ""
    """The folder of DeepSpeed's states."""
    world: int | None = None
    """The number of ranks that wrote it; none: no file tells."""
    model_ranks: int = 1
    """Ranks that share each layer (tensor parallelism) or the layers (pipeline)."""
    stage: int | None = None
    """The ZeRO stage; 2 also stands for 1, whose files look the same."""
    release: str = ""
    """The release of the engine that wrote it."""
    has_optimizer: bool = True
    has_schedule: bool = True
    has_random: bool = True
    progress: Progress | None = None
    settings: Settings = Settings()
    weights: Weights | None = None
    adapter: Mapping[str, Any] | None = None
    """adapter_config.json; none: whole weights."""
    unread: tuple[str, ...] = ()
    """Pickle files that were not read, so that their numbers are unknown."""
    newest: str = ""
    """For weights alone: the last checkpoint below the folder."""


def look(path: Path) -> Checkpoint:
    """The content of a folder; raise NoCheckpoint."""
    if not path.is_dir():
        why = "is a file" if path.exists() else "does not exist"
        raise NoCheckpoint(f"`{path}` {why}", "name the folder of a checkpoint")
    names = {each.name for each in path.iterdir()}
    for reader in (_deepspeed, _fsdp, _plain):
        found = reader(path, names)
        if found is not None:
            return found
    newest = _newest(path)
    if newest:
        raise NoCheckpoint(f"`{path}` holds checkpoints and is none", f"name one: {newest}")
    raise NoCheckpoint(
        f"`{path}` holds no checkpoint: neither states of DeepSpeed or FSDP, nor of a Trainer or "
        "accelerate, nor weights"
    )


def _step(name: str) -> int:
    digits = name.rpartition("-")[2]
    return int(digits) if digits.isdigit() else -1


def _common(path: Path, names: set[str]) -> dict[str, Any]:
    """What any checkpoint may hold besides optimizer states."""
    ranks = [int(found[1]) for found in map(_RANDOM.fullmatch, sorted(names)) if found]
    single = bool({"rng_state.pth"} & names)
    return {
        "path": path,
        "world": max(ranks) + 1 if ranks else 1 if single else None,
        "has_random": bool(ranks) or single,
        "has_schedule": bool({"scheduler.pt", "scheduler.bin"} & names),
        "progress": _progress(path / "trainer_state.json"),
        "settings": _settings(path / "training_args.bin"),
        "weights": _weights(path),
        "adapter": _object(path / "adapter_config.json") or None,
        "unread": tuple(
            name for name in sorted(names & {"optimizer.pt", "optimizer.bin", "pytorch_model.bin"})
        ),
    }


def _deepspeed(path: Path, names: set[str]) -> Checkpoint | None:
    """deepspeed 0.19.8 runtime/engine.py `_get_zero_ckpt_name`, `_get_ckpt_name`; `latest`."""
    tags = [name for name in names if (path / name).is_dir() and _is_tag(path / name)]
    common = _common(path, names)
    if not tags:
        if not _is_tag(path):
            return None
        return _of_tag(path, path.parent, common)
    latest = _text(path / "latest_universal") or _text(path / "latest")
    tag = latest if latest in tags else max(tags, key=_step_of)
    return _of_tag(path / tag, path, common)


def _step_of(tag: str) -> tuple[int, str]:
    found = re.search(r"\d+", tag)
    return int(found[0]) if found else -1, tag


def _is_tag(folder: Path) -> bool:
    names = [each.name for each in folder.iterdir()]
    return "zero" in names or any(_ZERO.fullmatch(n) or _MODEL.fullmatch(n) for n in names)


def _of_tag(folder: Path, path: Path, common: dict[str, Any]) -> Checkpoint:
    names = [each.name for each in folder.iterdir()]
    shards = [found for found in map(_ZERO.fullmatch, names) if found]
    models = [found for found in map(_MODEL.fullmatch, sorted(names)) if found]
    is_universal = "zero" in names and (folder / "zero").is_dir()
    said = objects(folder / models[0][0]) if models else None
    release = said.get("ds_version") if isinstance(said, dict) else None
    ranks = {int(found[1]) for found in shards}
    told = number(said, "dp_world_size")
    is_third = any(found[1] for found in models)
    known = {**common, "path": path, "tag": folder.name}
    return Checkpoint(
        **{
            **known,
            "kind": "universal" if is_universal else "deepspeed",
            "world": max(ranks) + 1 if ranks else int(told) if told else common["world"],
            "model_ranks": len({found[2] for found in models}) or 1,
            "stage": 3 if is_third else 2 if shards or (is_universal and models) else None,
            "release": f"deepspeed {release}" if isinstance(release, str) else "",
            "has_optimizer": is_universal or bool(shards),
            "has_schedule": True,
            "unread": tuple(sorted(found[0] for found in shards)[:1]),
        }
    )


def _fsdp(path: Path, names: set[str]) -> Checkpoint | None:
    """accelerate 1.15.0 utils/fsdp_utils.py `save_fsdp_model`, `save_fsdp_optimizer`."""
    folders = [n for n in names if _FSDP.fullmatch(n) and (path / n / ".metadata").is_file()]
    is_full = bool({"pytorch_model_fsdp.bin"} & names)
    if not folders and not is_full:
        return None
    common = _common(path, names)
    ranks = [n for folder in folders for n in _ranks(path / folder)]
    kept = (path / "optimizer_0" / ".metadata").is_file()
    has_optimizer = kept or "optimizer.bin" in names
    if folders:
        world = max(ranks) + 1 if ranks else common["world"]
        known = {**common, "world": world, "has_optimizer": has_optimizer}
        return Checkpoint(kind="fsdp-sharded", **known)
    return Checkpoint(kind="fsdp-full", **{**common, "has_optimizer": has_optimizer})


def _ranks(folder: Path) -> Iterator[int]:
    """torch 2.13.0 distributed/checkpoint/filesystem.py: a file `__RANK_N.distcp` for each rank."""
    for each in folder.glob("__*.distcp"):
        found = re.match(r"__(\d+)_", each.name)
        if found:
            yield int(found[1])


def _newest(path: Path) -> str:
    """The folder below it with the last step; empty: there is none."""
    inner = (each for each in path.glob("checkpoint-*") if each.is_dir())
    return str(max(inner, key=lambda each: _step(each.name), default=""))


def _plain(path: Path, names: set[str]) -> Checkpoint | None:
    common = _common(path, names)
    weights = common["weights"] is not None or bool({"pytorch_model.bin"} & names)
    if "trainer_state.json" in names or "optimizer.pt" in names:
        return Checkpoint(kind="trainer", **common, has_optimizer="optimizer.pt" in names)
    if "optimizer.bin" in names or common["has_random"]:
        return Checkpoint(kind="accelerate", **common, has_optimizer="optimizer.bin" in names)
    if weights or common["adapter"] is not None:
        return Checkpoint(kind="weights", **common, has_optimizer=False, newest=_newest(path))
    return None


def _progress(file: Path) -> Progress | None:
    """transformers 5.23.0 trainer_callback.py `TrainerState`."""
    said = _object(file)
    step, most = number(said, "global_step"), number(said, "max_steps")
    if step is None or most is None:
        return None
    logs = said.get("log_history")
    rates = [number(each, "learning_rate") for each in logs] if isinstance(logs, list) else []
    known = [rate for rate in rates if rate is not None]
    micro = number(said, "train_batch_size")
    return Progress(
        int(step),
        int(most),
        float(number(said, "epoch") or 0),
        float(number(said, "num_train_epochs") or 0),
        int(micro) if micro else None,
        float(known[-1]) if known else None,
    )


def _settings(file: Path) -> Settings:
    said = attributes(objects(file))
    whole = {
        name: number(said, key)
        for name, key in (
            ("accumulation", "gradient_accumulation_steps"),
            ("micro", "per_device_train_batch_size"),
            ("seed", "seed"),
        )
    }
    rate = number(said, "learning_rate")
    return Settings(
        **{name: int(value) for name, value in whole.items() if value is not None},
        rate=float(rate) if rate is not None else None,
    )


def _weights(path: Path) -> Weights | None:
    """Parameters by the headers of safetensors: eight bytes of length, then JSON."""
    shapes: dict[str, tuple[int, ...]] = {}
    dtypes: set[str] = set()
    for file in sorted(path.glob("*.safetensors")):
        for name, each in _header(file).items():
            if name != "__metadata__" and isinstance(each, dict):
                shapes[name] = _shape(file, each.get("shape"))
                dtypes.add(str(each.get("dtype")))
    if not shapes:
        return None
    return Weights(sum(map(prod, shapes.values())), tuple(sorted(dtypes)), _head(shapes))


def _head(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """The size of a head that repeats an embedding: ZeRO's copies of tied weights are both saved.

    transformers 5.23.0 trainer.py saves the state dict that `Accelerator.get_state_dict` returns
    under DeepSpeed, whose tensors no longer share storage.
    """
    embeddings = {shape for name, shape in shapes.items() if "embed" in name and len(shape) == 2}
    heads = (shape for name, shape in shapes.items() if name.endswith(_HEADS))
    return next((prod(shape) for shape in heads if shape in embeddings), 0)


def _shape(file: Path, shape: Any) -> tuple[int, ...]:
    sides = shape if isinstance(shape, list) else [None]
    if not all(type(each) is int and 0 <= each < _MOST_SIDE for each in sides):
        raise NoCheckpoint(f"`{file}` has a tensor of the shape {shortened(str(shape))}")
    return tuple(sides)


def _header(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise NoCheckpoint(f"`{file}` is not a regular file")
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if length > _HEADER:
            raise NoCheckpoint(f"`{file}` has no header of safetensors")
        text = opened.read(length)
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise NoCheckpoint(f"`{file}` has no header of safetensors") from None
    return found if isinstance(found, dict) else {}


def _object(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        found = json.loads(file.read_text("utf-8"))
    except (ValueError, RecursionError) as fault:
        raise NoCheckpoint(f"`{file}` is not JSON: {fault}") from None
    return found if isinstance(found, dict) else {}


def _text(file: Path) -> str:
    """The name in a file; "" if there is none."""
    found = file.read_bytes()[:_LONGEST] if file.is_file() else b""
    return found.decode("utf-8", "replace").strip()
