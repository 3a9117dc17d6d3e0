"""What is mangled: sound files of every kind that tunec reads, and the commands that read them."""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from random import Random

import yaml
from tests.fuzz import wider_seeds
from tests.fuzz.seed import ROOT, SCRIPT, Seed, runs_of_lint, specs, target, written_by

FLEET = """\
fleet: 1
specs: spec.yaml
clusters:
  include: [p100-x2, a100-80g-x8]
  exclude: "*-pcie-*"
targets: [deepspeed@0.19, launch]
overrides:
  - clusters: p100-*
    set: {batch: {global: 128}}
policies: [policy.yaml]
"""
POLICY = """\
policy: 1
rules:
  - name: offload-on-shared-disks
    because: the disks of these nodes are shared
    on: {clusters: "p4d.*"}
    require: {zero.offload_optimizer: {not: nvme}, zero.stage: {from: 0, to: 3}}
  - name: little-headroom
    severity: warning
    because: drivers differ between our sites
    require: {memory.headroom_share: {from: 3%}, batch.global: {from: 64, to: 512}}
  - name: pin-without-reason
    because: the next reader has to know
    pins: need-a-reason
"""
_FLEET_FILES = {"fleet.yaml": FLEET, "policy.yaml": POLICY}
BASELINE = """\
{"baseline": 1, "findings": [
  {"name": "unknown-key", "file": "ds_config.json", "path": "x", "message": "m", "count": 1}
]}
"""
_MORE_OF_LINT = (
    *((), (), ("--hardware", "p100-x2"), ("--world-size", "8"), ("--software", "torch=2.13")),
    *(("--format", "sarif"), ("--format", "github"), ("--fix",), ("--model", "llama-3.1-8b")),
)


def drawn(random: Random) -> Seed:
    """One of all sound calls; every reader is as likely as the others."""
    return random.choice(_READERS)(random)


def _spec_read(random: Random) -> Seed:
    files = {"spec.yaml": random.choice(specs())}
    words = random.choice(
        (
            ("plan", "spec.yaml"),
            ("plan", "spec.yaml", "--all"),
            ("compile", "spec.yaml", "--target", target(random), "-o", "out"),
            ("explain", "spec.yaml", random.choice(("zero.stage", "batch.micro", "lora.rank"))),
            ("report", "spec.yaml", "-o", "out/report.html"),
            ("lint", "spec.yaml"),
        )
    )
    return Seed(files, words)


def _spec_with_files(random: Random) -> Seed:
    """A spec beside what it names: a base, a cluster, a model's config, a policy, lengths."""
    spec = random.choice(specs())
    match random.randrange(5):
        case 0:
            files = {"spec.yaml": "extends: base.yaml\nseed: 3\n", "base.yaml": spec}
            return Seed(files, ("plan", "spec.yaml"))
        case 1:
            files = {"spec.yaml": spec, "cluster.yaml": random.choice(_clusters())}
            return Seed(files, ("plan", "spec.yaml", "--hardware", "cluster.yaml"))
        case 2:
            files = {"spec.yaml": spec, "config.json": random.choice(_configs())}
            return Seed(files, ("plan", "spec.yaml", "--set", "model=./config.json"))
        case 3:
            files = {"spec.yaml": spec, "policy.yaml": POLICY}
            return Seed(files, ("plan", "spec.yaml", "--policy", "policy.yaml"))
        case _:
            files = {"spec.yaml": spec, "lengths.json": '{"800": 1500, "2400": 500}'}
            return Seed(files, ("plan", "spec.yaml", "--set", "data.lengths=lengths.json"))


def _fleet(random: Random) -> Seed:
    files = {**_FLEET_FILES, "spec.yaml": random.choice(specs())}
    return Seed(files, ("fleet", "fleet.yaml", "-o", "out", "-j", "1"))


def _built_fleet(random: Random) -> Seed:
    """A fleet whose lock is there: another run wrote it, or a merge spoilt it."""
    files = {**_FLEET_FILES, "spec.yaml": specs()[0], "out/tunec.lock": _lock()}
    more = random.choice(((), ("--check",), ("--prune",)))
    return Seed(files, ("fleet", "fleet.yaml", "-o", "out", "-j", "1", *more))


def _diff(random: Random) -> Seed:
    files = {"old.yaml": random.choice(specs()), "new.yaml": random.choice(specs())}
    more = ("--files",) if random.random() < 0.3 else ()
    return Seed(files, ("diff", "old.yaml", "new.yaml", *more))


def _lint(random: Random) -> Seed:
    files, words = random.choice(runs_of_lint())
    more = random.choice(_MORE_OF_LINT)
    return Seed(files, ("lint", *words, *more))


def _lint_with_baseline(random: Random) -> Seed:
    files, words = random.choice(runs_of_lint())
    files = {**files, "known.json": BASELINE}
    return Seed(files, ("lint", *words, "--baseline", "known.json"))


def _translate(random: Random) -> Seed:
    files, words = random.choice(runs_of_lint())
    to = random.choice((target(random), target(random), "spec"))
    output = ("-o", "out/spec.yaml" if to == "spec" else "out")
    return Seed(files, ("translate", *_files_of(words, files), "--to", to, *output))


def _lint_python(random: Random) -> Seed:
    """A script, alone or with what it names and what starts it."""
    files = {"train.py": SCRIPT}
    if random.random() < 0.5:
        return Seed(files, ("lint", "train.py", *random.choice(_MORE_OF_LINT)))
    engine = '{"zero_optimization": {"stage": 2}, "train_batch_size": "auto"}\n'
    started = "torchrun --nproc_per_node 8 train.py --long\n"
    return Seed({**files, "ds_config.json": engine, "run.sh": started}, ("lint", "."))


def _words(random: Random) -> Seed:
    """No file: what stands on the command line is all that is read."""
    words = random.choice(
        (
            ("explain", "E0701"),
            ("catalog", "devices", "p100"),
            ("catalog", "models", "llama-3.1-8b"),
            ("init", "--model", "llama-3.1-8b", "--hardware", "a100-80g-x8"),
            ("schema", "fleet"),
            ("completion", "bash"),
        )
    )
    return Seed({}, words)


_READERS = (
    *(_spec_read, _spec_read, _spec_with_files, _spec_with_files, _fleet, _built_fleet, _diff),
    *(_lint, _lint, _lint, _lint_with_baseline, _lint_python, _translate, _translate, _words),
    *wider_seeds.READERS,
)


def _files_of(words: tuple[str, ...], files: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(each for each in words if each in files) or tuple(files)


@lru_cache
def _lock() -> str:
    files = {**_FLEET_FILES, "spec.yaml": specs()[0]}
    return written_by(files, ("fleet", "fleet.yaml", "-o", "out", "-j", "1"), "out/tunec.lock")


@lru_cache
def _clusters() -> tuple[str, ...]:
    found = sorted((ROOT / "schemas/hardware/clusters").glob("*.yaml"))
    return tuple(path.read_text("utf-8") for path in found)


@lru_cache
def _configs() -> tuple[str, ...]:
    return tuple(_config_texts())


def _config_texts() -> Iterator[str]:
    for path in sorted((ROOT / "schemas/models/cards").glob("*.yaml")):
        config = yaml.safe_load(path.read_text("utf-8")).get("config")
        if config:
            yield json.dumps(config, indent=2)
