"""Widths of parallelism in accelerate's file beside an engine that has none of them."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.lints.accelerate.counted import count, engine
from tunec.compiler.lints.document import Document
from tunec.compiler.lints.parallel.shared import SECTION
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_VERSION: Final = "fsdp_config.fsdp_version"


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("accelerate"):
        started = engine(document)
        if document.is_view or started is None:
            continue
        yield from _sequence(document, started)
        version = document.value(_VERSION, document.value("fsdp_config.version", 1))
        if started.value == "FSDP" and str(version) == "2":
            continue
        if started.value in ("MULTI_GPU", "FSDP"):
            yield from _context(document, started)
        if started.value == "MULTI_GPU":
            yield from _shards(document, started)


def _wide(document: Document, name: str) -> Place | None:
    found = count(document, f"{SECTION}{name}_size")
    return found[1] if found is not None and found[0] > 1 else None


def _context(document: Document, started: Place) -> Iterator[Finding]:
    at = _wide(document, "cp")
    if at is not None:
        yield Finding(
            f"a context of {at.value} processes is refused without FSDP 2",
            (at.label("refused"), started.label("", primary=False)),
            ("accelerate: cp_size > 1 needs the plugin of FSDP 2, which shards the model too",),
            "write distributed_type: FSDP and fsdp_version: 2",
        )


def _shards(document: Document, started: Place) -> Iterator[Finding]:
    at = _wide(document, "dp_shard")
    if at is not None and _wide(document, "cp") is None:
        yield Finding(
            f"dp_shard_size {at.value} shards nothing beside {started.value}",
            (at.label("not read"), started.label("", primary=False)),
            ("every process holds the whole model, as with dp_replicate_size",),
            "write distributed_type: FSDP and fsdp_version: 2, or dp_replicate_size",
            consequence="silent",
        )


def _sequence(document: Document, started: Place) -> Iterator[Finding]:
    at = _wide(document, "sp")
    if at is not None and started.value in ("MULTI_GPU", "FSDP"):
        yield Finding(
            f"sp_size {at.value} splits no sequence beside {started.value}",
            (at.label("not read"), started.label("", primary=False)),
            ("DeepSpeed alone is given it: each process works on whole sequences",),
            "write distributed_type: DEEPSPEED, or cp_size beside FSDP 2",
            consequence="silent",
        )


RULE = Rule(
    name="widths-without-their-engine",
    severity="error",
    consequence="init",
    consumers=("accelerate>=1.10",),
    sources=(
        (
            "accelerate 1.10.1, 1.15.0 state.py `AcceleratorState`: ValueError, `cp_size > 1` "
            "specified, but no `fsdp_plugin`, Using `cp_size>1` requires FSDP2; accelerator.py "
            "`prepare_model`: DistributedDataParallel where the type is MULTI_GPU; 1.12.0, 1.15.0 "
            "`_prepare_deepspeed`: the one reader of sp_size"
        ),
    ),
    check=_check,
)
