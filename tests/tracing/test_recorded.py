"""The recorded traces: all of them against today's account, some of them traced again.

`benchmarks/trace_table.py` recorded them; `docs/memory-accuracy.md` shows them.
"""

import json
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

DATA = json.loads((Path(__file__).parent / "data/traced.json").read_text("utf-8"))
ROWS = [row for row in DATA if "failed" not in row]

from trace_page import (  # noqa: E402
    class_of,
    combination_of,
    error_of,
    errors_by_phase,
    percentile,
    worst,
)


def title(row):
    return f"{row['combination']['model']} {combination_of(row).title}"


@pytest.fixture(scope="module")
def errors():
    return [(row, error_of(row)) for row in ROWS]


def test_the_table_is_wide():
    assert len(ROWS) >= 150
    assert len({row["combination"]["model"] for row in ROWS}) >= 25
    classes = {class_of(row) for row in ROWS}
    assert {"dense", "moe", "vision-language", "encoder-decoder", "diffusion", "sharded"} <= classes


def test_the_account_is_within_half_a_per_cent_of_half_of_all_traces(errors):
    assert median(abs(error) for _, error in errors) <= 0.005, worst(ROWS, 0.03)


def test_no_row_is_farther_from_its_trace_than_when_it_was_recorded(errors):
    worse = [
        f"{title(row)}: {100 * row['error']:+.2f} % then, {100 * error:+.2f} % now"
        for row, error in errors
        if abs(error) > max(abs(row["error"]) + 0.01, 0.01)
    ]
    assert worse == []


BAND = 0.03
KNOWN_OFF = json.loads((Path(__file__).parent / "data/known_off.json").read_text("utf-8"))
"""Combinations for which the account is known to be off, with what differs."""


def test_95_of_100_rows_are_within_3_per_cent(errors):
    assert percentile([abs(error) for _, error in errors], 0.95) <= BAND


def test_what_is_farther_off_is_known_by_name(errors):
    assert {title(row) for row, error in errors if abs(error) > BAND} == set(KNOWN_OFF)


def test_dense_decoders_are_within_1_per_cent_each(errors):
    off = [
        f"{title(row)}: {100 * error:+.2f} %"
        for row, error in errors
        if class_of(row) == "dense" and abs(error) > 0.01
    ]
    assert off == []


BESIDE = frozenset(
    {"evaluation", "evaluation answers", "prompt", "generation", "scoring", "handing over"}
    | {"merging"}
)


def test_what_comes_beside_a_step_is_near_its_trace_too():
    """Whether it is the peak or not: `prompt` by evaluation with beams alone is farther off."""
    off = [
        f"{title(row)}, {phase}: {100 * error:+.2f} %"
        for row in ROWS
        if BESIDE & set(row["phases"])
        for phase, error in errors_by_phase(row).items()
        if phase in BESIDE and abs(error) > BAND
    ]
    assert off == []


def test_a_base_that_is_read_whole_lies_in_no_phase_of_a_trace():
    """Loading comes before the first step, so it is no part of the forward pass."""
    loaded = [row for row in ROWS if row["combination"]["model"] == "llama-3.1-8b"]
    found = [errors_by_phase(row) for row in loaded if "qlora fsdp" in title(row)]
    assert found
    assert all(abs(each["forward"]) <= BAND for each in found), found


VLLM = (
    "lora bf16 sequence=1024 micro=4 checkpointed=True packing=False accumulation=2 "
    "loss=chunked reference=base answers=512 rewarded=vllm"
)
SAMPLE = (
    ("qwen2.5-0.5b", "lora bf16 sequence=1024 micro=4 checkpointed=True"),
    ("llama-3.2-1b", "full bf16 ddp world=2"),
    ("qwen2.5-0.5b", "full mixed checkpointed=True deepspeed world=8 stage=3"),
    ("qwen2.5-0.5b", "qlora fsdp checkpointed=True fsdp world=8 fsdp=full moved=True"),
    ("llama-3.2-1b", VLLM),
    ("stable-diffusion-v1-5", "full bf16 sequence=0 packing=False"),
)
"""One of each kind of engine, base and model, in every run."""
MORE = (
    ("qwen2.5-0.5b", "full bf16"),
    ("llama-3.2-1b", "full autocast checkpointed=True"),
    ("qwen2.5-0.5b", "full mixed checkpointed=True deepspeed world=8 stage=2"),
    ("llama-3.2-1b", "full mixed checkpointed=True deepspeed world=8 stage=1 tensor=2"),
    ("llama-3.2-1b", "full mixed deepspeed world=8 stage=1 ulysses=2"),
    ("qwen2.5-0.5b", "full fsdp checkpointed=True fsdp world=8 fsdp=full"),
    ("qwen2.5-0.5b", "full fsdp checkpointed=True fsdp world=8 fsdp=full version=1"),
    (
        "llama-3.2-1b",
        "lora fsdp sequence=512 checkpointed=True fsdp world=8 fsdp=full version=1 moved=True",
    ),
    ("gpt2-xl", "full bf16 sequence=1024 attention=eager"),
    ("llama-3.2-1b", "lora bf16 sequence=4096 packing=False loss=chunked reference=base"),
    ("llama-3.2-1b", "lora bf16 sequence=4096 checkpointed=True loss=chunked offload=True"),
    ("llama-3.2-1b", "lora bf16 sequence=512 checkpointed=True dora=True merged=True"),
    ("llama-3.2-1b", "qlora bf16 sequence=512 checkpointed=True merged=True"),
    ("sd3-medium", "full bf16 sequence=0 checkpointed=True packing=False segment=4"),
    ("bart-large", "full bf16 sequence=512 packing=False"),
)
"""What nightly runs trace again beside those."""


@pytest.fixture(scope="module")
def recorded(request):
    """By model and title the rows that this run asks of, as they were recorded."""
    by_title = {(r["combination"]["model"], words_of(r)): r for r in reversed(ROWS)}
    calls = (getattr(each, "callspec", None) for each in request.session.items)
    asked = [each.params.get("names") for each in calls if each is not None]
    return {names: by_title[names] for names in (*SAMPLE, *MORE) if names in asked}


def words_of(row):
    return combination_of(row).title.replace("engine=", "")


@pytest.fixture(scope="module")
def again(recorded):
    """The sample's rows, traced anew by children of one process, which loads the libraries once."""
    for name in ("torch", "deepspeed", "diffusers"):
        pytest.importorskip(name)
    rows = in_a_fresh_process([row["combination"] for row in recorded.values()])
    found = {row_key(row): row for row in rows}
    return {names: found[row_key(row)] for names, row in recorded.items()}


def row_key(row):
    from trace_table import key_of

    return key_of(row["combination"])


@pytest.mark.parametrize(
    "names",
    [*SAMPLE, *(pytest.param(each, marks=pytest.mark.nightly) for each in MORE)],
    ids=" ".join,
)
def test_tracing_again_gives_the_same_bytes(names, recorded, again):
    assert "failed" not in again[names], again[names]["failed"]
    assert again[names]["phases"] == recorded[names]["phases"]


TRACES = """\
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from trace_page import combination_of
from trace_table import rows
asked = [combination_of({"combination": each}) for each in json.loads(sys.argv[2])]
print(json.dumps(list(rows(1, asked))))
"""


def in_a_fresh_process(combinations):
    """Their rows: tracing forks, and a process that has differentiated cannot go on in a fork."""
    words = (json.dumps(sys.path), json.dumps(combinations))
    command = [sys.executable, "-c", TRACES, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])
