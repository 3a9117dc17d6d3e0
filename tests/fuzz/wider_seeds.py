"""Sound calls of the commands that read data, runs, checkpoints, prices, settings and cards.

And the questions of an editor and of an agent, whose words `tests/fuzz/servers.py` answers.
"""

import io
import json
import pickle
import zipfile
from collections.abc import Callable, Mapping
from functools import lru_cache
from random import Random

from tests.calibrate import logs
from tests.fuzz.seed import ROOT, Seed, runs_of_lint, specs, target

_CHAT = [
    {"role": "system", "content": "a fox"},
    {"role": "user", "content": "what is the capital"},
    {"role": "assistant", "content": "the capital is a country"},
]
RECORDS = (
    {"messages": _CHAT, "tools": [{"name": "dog"}]},
    {"conversations": [{"from": "human", "value": "a dog"}, {"from": "gpt", "value": "lazy"}]},
    {"instruction": "what is", "input": "a dog", "output": "lazy"},
    {"prompt": _CHAT[1:2], "completion": _CHAT[2:]},
    {"prompt": _CHAT[1:2], "chosen": _CHAT[2:], "rejected": _CHAT[2:]},
    {"text": "the quick brown fox jumps over a lazy dog"},
)
TEMPLATE = """\
{{ bos_token }}{% for message in messages %}{{ message['role'] + '\\n' }}
{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] }}{% endgeneration %}
{% else %}{{ message['content'] | trim }}{% endif %}{% endfor %}
{% if add_generation_prompt %}{{ 'assistant' }}{% endif %}
"""
PRICES = """\
provider: lambda
currency: USD
dated: 2025-09-09
source: our contract
instances: {lambda-a6000-x4: gpu_4x_a6000, p100-x2: two}
regions:
  us-east-1:
    lambda-a6000-x4: {on_demand: 4.36, spot: 1.2}
    p100-x2: {on_demand: 1.5}
"""
SETTINGS = """\
exclude = ["old/**", "vendor"]
hardware = "a100-80g-x8"
software = {transformers = "4.57.1", trl = ">=0.24,<0.25"}
baseline = "known.json"

[rules]
reference-model-beside-zero-3 = "off"
scheduler-overridden = "error"

[paths."a/**"]
fp16-and-bf16 = "note"
"""
SECTION = (
    '[project]\nname = "x"\n\n[tool.tunec]\nexclude = ["old"]\nrules = {fp16-and-bf16 = "off"}\n'
)
BOTH = '{"fp16": {"enabled": true}, "bf16": {"enabled": true}}\n'
Reader = Callable[[Random], Seed]


# ── data ─────────────────────────────────────────────────────────────────────────────────────────


def _data(random: Random) -> Seed:
    record = random.choice(RECORDS)
    name, content = random.choice((_lines, _lines, _list, _csv, _parquet))(record)
    files: dict[str, str | bytes] = {name: content}
    match random.randrange(5):
        case 0 | 1:
            more: tuple[str, ...] = ("--estimate", "--sequence", "64", "-o", "out/lengths.json")
        case 2:
            files["spec.yaml"] = _trained_on(name)
            return Seed(files, ("data", "--spec", "spec.yaml", "--estimate"))
        case _:
            files |= {"m/tokenizer.json": _tokenizer(), "chat.jinja": TEMPLATE}
            files["m/tokenizer_config.json"] = '{"eos_token": "</s>", "bos_token": "<s>"}'
            more = ("--tokenizer", "m", "--template", "chat.jinja", "--check", "lengths.json")
            files["lengths.json"] = '{"800": 1500, "2400": 500}'
    return Seed(files, ("data", name, *more))


def _lines(record: Mapping[str, object]) -> tuple[str, str]:
    return "train.jsonl", f"{json.dumps(record)}\n" * 3


def _list(record: Mapping[str, object]) -> tuple[str, str]:
    return "train.json", json.dumps({"data": [record] * 3}, indent=1)


def _csv(record: Mapping[str, object]) -> tuple[str, str]:
    cells = (json.dumps(each).replace('"', '""') for each in record.values())
    row = ",".join(f'"{each}"' for each in cells)
    return "train.csv", f"{','.join(record)}\n{row}\n{row}\n"


def _parquet(record: Mapping[str, object]) -> tuple[str, bytes]:
    return "train.parquet", _table(json.dumps(record))


@lru_cache
def _table(record: str) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    made = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist([json.loads(record)] * 3), made)
    return made.getvalue()


@lru_cache
def _tokenizer() -> str:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["<unk>", "<s>", "</s>", "a", "dog", "fox", "the", "lazy", "user", "is", "what"]
    made = Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, "<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment]
    return str(made.to_str())


def _trained_on(name: str) -> str:
    return (
        f"tunec: 1\nmodel: llama-3.2-1b\nmethod: lora\ndata: {{train: {name}, sequence: 512}}\n"
        "hardware: a100-80g-x4\nbatch: {global: 8}\n"
    )


# ── runs and checkpoints ─────────────────────────────────────────────────────────────────────────

_STATE = {
    "global_step": 500,
    "max_steps": 2000,
    "epoch": 0.25,
    "num_train_epochs": 1,
    "train_batch_size": 2,
    "log_history": [{"step": 500, "learning_rate": 1e-4}],
}
_STATS = {"allocated_bytes.all.peak": 60 << 30, "reserved_bytes.all.peak": 64 << 30}


def _run(random: Random) -> Seed:
    name, text = random.choice(
        (
            ("train.log", logs.TRAINER),
            ("train.log", logs.AXOLOTL),
            ("train.log", logs.DEEPSPEED),
            ("train.log", logs.CLOCKS),
            ("trainer_log.jsonl", logs.FACTORY),
            ("smi.csv", logs.DRIVER),
            ("memory_stats.json", json.dumps(_STATS)),
            ("trainer_state.json", json.dumps(_STATE)),
            ("snapshot.pickle", _snapshot()),
        )
    )
    files = {"run/" + name: text, "spec.yaml": specs()[0]}
    if random.random() < 0.3:
        files["run/train.log"] = logs.TRAINER
    more = random.choice((("--dry-run",), ("-o", "out.measured.yaml")))
    return Seed(files, ("calibrate", "spec.yaml", "run", *more))


@lru_cache
def _snapshot() -> bytes:
    """A snapshot of torch's allocator, as `torch.cuda.memory._dump_snapshot` writes it."""
    block = {"size": 1 << 20, "requested_size": 1 << 20, "state": "active_allocated", "address": 8}
    segment = {"total_size": 2 << 20, "allocated_size": 1 << 20, "device": 0, "blocks": [block]}
    event = {"action": "alloc", "addr": 8, "size": 1 << 20, "stream": 0, "frames": []}
    return pickle.dumps({"segments": [segment], "device_traces": [[event]]}, 4)


def _measured(random: Random) -> Seed:
    """A plan of a cluster that has learnt, and the file worked out anew."""
    files = {"spec.yaml": _trained_on("train.jsonl"), "a100-80g-x4.measured.yaml": _learnt()}
    again = ("calibrate", "a100-80g-x4.measured.yaml", "--dry-run")
    words = random.choice((("plan", "spec.yaml"), again, ("explain", "spec.yaml", "zero.stage")))
    return Seed(files, words)


@lru_cache
def _learnt() -> str:
    from tests.fuzz.seed import written_by

    spec = _trained_on("train.jsonl").replace("global: 8", "global: 320")  # a step of 3 s
    files = {"spec.yaml": spec, "train.log": logs.TRAINER}
    return written_by(files, ("calibrate", "spec.yaml", "train.log", "-o", "m.yaml"), "m.yaml")


_ZERO = (
    *("latest", "zero_to_fp32.py", "rng_state_0.pth", "rng_state_1.pth"),
    *(f"global_step500/bf16_zero_pp_rank_{n}_mp_rank_00_optim_states.pt" for n in range(2)),
)
_PLAIN = ("optimizer.pt", "scheduler.pt", "rng_state_0.pth", "adapter_config.json")
_SHARDED = ("pytorch_model_fsdp_0/.metadata", "optimizer_0/.metadata", "scheduler.pt")


def _checkpoint(random: Random) -> Seed:
    names = random.choice((_ZERO, _PLAIN, _SHARDED))
    files: dict[str, str | bytes] = {f"old/{name}": "" for name in names}
    if "latest" in names:
        files["old/latest"] = "global_step500"
        files["old/global_step500/mp_rank_00_model_states.pt"] = _archive(
            {"ds_version": "0.19.8", "dp_world_size": 2, "module": {}}
        )
    if "adapter_config.json" in names:
        files["old/adapter_config.json"] = '{"peft_type": "LORA", "r": 8, "lora_alpha": 16}'
        files["old/adapter_model.safetensors"] = b"\x02\x00\x00\x00\x00\x00\x00\x00{}"
    files |= {
        "old/trainer_state.json": json.dumps(_STATE),
        "old/training_args.bin": _archive({"gradient_accumulation_steps": 4, "seed": 7}),
        "old/config.json": '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2}',
        "spec.yaml": _trained_on("train.jsonl"),
    }
    more = random.choice((("--spec", "spec.yaml"), ()))
    return Seed(files, ("resume", "old", "--hardware", "a100-80g-x2", *more))


def _archive(content: object) -> bytes:
    """A file as `torch.save` writes it, without tensors."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(content, 2))
    return made.getvalue()


# ── choices, cards and settings ──────────────────────────────────────────────────────────────────


def _choice(random: Random) -> Seed:
    files = {"spec.yaml": random.choice(specs()), "prices.yaml": PRICES}
    more = random.choice(
        (
            ("--sweep", "data.sequence=1k..4k"),
            ("--within", "12h", "--budget", "100"),
            ("--by", "energy", "-o", "out/page.html"),
            ("--spot", "--region", "us-*", "--provider", "lambda"),
        )
    )
    words = ("choose", "spec.yaml", "--prices", "prices.yaml", *more)
    return Seed(files, (*words, "--hardware", random.choice(("p100-x2", "lambda-a6000-x4"))))


def _card(random: Random) -> Seed:
    """A card that was derived from a class, as a spec's model."""
    files = {"spec.yaml": random.choice(specs()), "card.json": random.choice(_cards())}
    return Seed(files, ("plan", "spec.yaml", "--set", "model=./card.json"))


@lru_cache
def _cards() -> tuple[str, ...]:
    found = sorted((ROOT / "schemas/models/derived").glob("*.json"))
    return tuple(path.read_text("utf-8") for path in found[::12])


def _settings(random: Random) -> Seed:
    name, text = random.choice((("tunec.toml", SETTINGS), ("pyproject.toml", SECTION)))
    files = {name: text, "a/ds_config.json": BOTH, "known.json": '{"baseline": 1, "findings": []}'}
    more = ("--config", name) if random.random() < 0.3 else ()
    return Seed(files, ("lint", ".", *more))


# ── changes of trainers' files, and specs of them ────────────────────────────────────────────────


def _changed_run(random: Random) -> Seed:
    (old, _), (new, _) = random.choice(runs_of_lint()), random.choice(runs_of_lint())
    files = {f"old/{name}": text for name, text in old.items()}
    files |= {f"new/{name}": text for name, text in (old if random.random() < 0.5 else new).items()}
    more = random.choice(((), ("--model", "llama-3.1-8b", "--hardware", "a100-80g-x8")))
    return Seed(files, ("diff", "old", "new", *more))


def _started(random: Random) -> Seed:
    files, words = random.choice(runs_of_lint())
    named = tuple(each for each in words if each in files) or tuple(files)
    more = ("--model", "llama-3.1-8b", "--hardware", "a100-80g-x8", "-o", "out/spec.yaml")
    return Seed(files, ("init", "--from", *named, *more))


def _script(random: Random) -> Seed:
    from tests.fuzz.seed import SCRIPT

    to = random.choice((target(random), "spec"))
    where = ("-o", "out/spec.yaml" if to == "spec" else "out")
    if random.random() < 0.5:
        return Seed({"train.ipynb": _notebook(SCRIPT)}, ("lint", "."))
    return Seed({"train.py": SCRIPT}, ("translate", "train.py", "--to", to, *where))


def _notebook(script: str) -> str:
    """A script in two cells, behind one of words and one that installs."""
    head, tail = script.split("\n\n", 1)
    install = "!pip install -q transformers==4.57.6 trl\n%%time\n"
    texts = (("markdown", "# Training\n"), ("code", install), ("code", head), ("code", tail))
    cells = (
        {"cell_type": kind, "metadata": {}, "source": text.splitlines(keepends=True)}
        for kind, text in texts
    )
    return json.dumps({"cells": [*cells], "metadata": {}, "nbformat": 4}, indent=1)


# ── editors and agents ───────────────────────────────────────────────────────────────────────────


def _editor(random: Random) -> Seed:
    """A file as it is typed, and a place in it that is asked about."""
    files = dict(random.choice(runs_of_lint())[0])
    if random.random() < 0.5:
        files = {"spec.yaml": random.choice(specs())}
    elif random.random() < 0.3:
        files = {"tunec.toml": SETTINGS}
    name = random.choice(sorted(files))
    return Seed(files, ("lsp", name, str(random.randrange(30)), str(random.randrange(30))))


def _agent(random: Random) -> Seed:
    files, words = random.choice(runs_of_lint())
    named = [each for each in words if each in files] or sorted(files)
    spec = "spec.yaml"
    name, asked = random.choice(
        (
            ("plan", {"spec": spec, "overrides": ["batch.global=8"]}),
            ("explain", {"what": spec, "slot": "zero.stage"}),
            ("lint", {"paths": named}),
            ("diff", {"old": spec, "paths": [spec]}),
            ("translate", {"paths": named, "to": [target(random)], "directory": "out"}),
            ("compile", {"spec": spec, "targets": [target(random)], "directory": "out"}),
        )
    )
    return Seed({**files, spec: random.choice(specs())}, ("mcp", name, json.dumps(asked)))


READERS: tuple[Reader, ...] = (
    *(_data, _data, _run, _run, _measured, _checkpoint, _choice, _card, _settings),
    *(_changed_run, _started, _script, _editor, _editor, _agent),
)
