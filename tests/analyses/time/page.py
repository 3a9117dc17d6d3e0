"""docs/time-accuracy.md, from the published runs and today's account.

`python tests/analyses/time/page.py` writes it; `test_step_times.py` fails when it is stale.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from math import ceil, expm1
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "memory"), str(HERE.parents[2])]
from judging import Judged, by_class, judged, ranked, ranked_of  # noqa: E402
from measured_runs import SOURCES, Run, Split, runs  # noqa: E402
from measurements import quantile  # noqa: E402

ROOT: Final = HERE.parents[2]
PAGE: Final = ROOT / "docs/time-accuracy.md"
FIGURES: Final = ROOT / "compiler/analyses/time/accuracy.py"
BEFORE: Final[dict[str, Any]] = json.loads((HERE / "before.json").read_text())
UNUSED: Final[Sequence[Mapping[str, str]]] = json.loads((HERE / "sources.json").read_text())[
    "unused"
]
_HEAD: Final = """\
# How accurate the time account is

Published step times of real devices, each beside what the account says of the same workload, layout
and devices. An error is the absolute natural logarithm of account over publication: 0.10 is about a
tenth, 0.69 twice. Sources are split: to some the account's constants are fitted
(`compiler/analyses/time/coefficients.py`, by `tests/analyses/time/fit.py`), and all others judge
it. The split was written down before anything was fitted. What the account said before it counted
kernels stands beside it, without the sources that came later (xtuner, and four of full training:
deepspeed-to-fsdp, easycontext, fastcode, vectorlm); that account had been fitted to a
part of fms-acceleration and to the shortest texts of Qwen.

What was chosen with the judging half in view: the rates of GeForce cards, and that parameters which
FSDP keeps on the host travel while layers compute, are judgements made when runs of fsdp_qlora had
been seen; slices of experts, and that the host reads back in each layer how many tokens they have,
were found in the source of transformers when the account was too fast on fms-moe; that DeepSpeed's
Adam has one thread where `accelerate launch` starts it, that its gradients go down behind the
backward pass, and that the host narrows its weights, was read in the sources when ulysses-sp was
seen to be far off; so were the settings of automodel, the length of flux-qlora's texts and the
kernels of Unsloth, each where its source has it. What experts add to their tokens one by one was
read in the source of transformers when fms-moe was read again; how fast that is comes from
measurements of others. Qwen's rows had a projection each for queries, keys and values, until its
own scripts were read again (finetune.py, `lora_target_modules`); then kernels were traced of layers
that join them, and adapters were found to have hooks of stage 3 too. Copies and launches around
exchanges of those that share a sequence were read in DeepSpeed's source when ulysses-sp was read
again, and the bucket of Qwen's runs on two nodes in the file that they name; that devices without a
link have a third of their slots for each other comes from measurements that were looked for when
fsdp_qlora's RTX 6000 Ada had been seen; and that attention waits less for exponentials on chips
that multiply less follows from an A100's, though it was worked out when the longest text of an RTX
4090 had been seen. Tiles, and the hooks of stage 2, come from their sources and from the fitting
half, which likes a quarter of a last wave a little more than the half that is taken.

What the fitting half decided: that a product takes as long as the slower of its arithmetic and its
memory, and not their sum (the fit's sum falls from 3.30 to 3.15); and that the hooks of stage 3 are
added to the device's time (3.10) and do not run beside it (3.15). xtuner's runs alone would have
them beside it, with a median of 0.05 and not 0.08, and Qwen's full runs on two devices too; its
72B at short texts would not. The host may be two fetches ahead of the device and no more (deepspeed
0.19.8 `runtime/zero/partitioned_param_coordinator.py`, `__max_ongoing_fetch_events`).
"""
_KNOWN: Final = """\
## Where it is wrong

- Qwen-7B on two nodes takes 1.75 times as long as on one device at every length from 512 tokens on.
  The text says one sample and eight micro batches, as on one device, and so does its memory. The
  script that it names, finetune/finetune_lora_ds.sh, has two samples, with which the account would
  be off by -0.09 to +0.15 from 256 to 8,192 tokens. But the memory rules them out: with them a
  device would hold 51 GB at 8,192 tokens, and all four together held 155.5. What README.md says:
  "We uniformly use a batch size of 1 and gradient accumulation of 8", "the rest of configurations
  are the same as other Qwen-7B experiments", and its unit is "s/iter". So the batch is in doubt:
  the text's number is taken, and these runs are in most pairs that the account ranks wrongly.
- fastcode's RTX A6000 take 4.6 times as long as its A100 of 40 GB, which have twice their rate and
  memory bandwidth. No other source has an A6000, so that nothing is fitted to it.
- ulysses-sp takes 27 seconds a step at 8,192 tokens on one device as on four. Its data set streams
  whole books, and TRL of its time (0.26, `trl/data_utils.py`, `truncate_dataset`) turns a thousand
  of them into tokens before the first of its 50 steps, on each rank: what is published is probably
  the whole run's speed. From 32,768 to 65,536 tokens a step takes 6 seconds more, in which the
  devices could not do even the added attention (9 seconds at their full rate): its texts are
  shorter than that. Its memory speaks against its text too: 76.4 GB on one device, and 23.4 GB on
  each of four, are what optimizer states on the devices take. The text says that they are on the
  host, and so they are accounted for.
- xtuner's Llama 3 8B on two devices takes twice the time of the account, on four as long as
  accounted for, and on eight 0.9 times: the same texts on devices of which, by the memory account,
  71, 47 and 32 of 79 GiB are tensors. Probably what DeepSpeed's stage 3 gathers in turn finds no
  room there, and torch's allocator gives blocks back and asks for new ones in each layer (torch
  `c10/cuda/CUDACachingAllocator.cpp`, `DeviceCachingAllocator::malloc`: `release_cached_blocks`).
  How long that takes no other run shows, and the account has no term for it.
- fsdp_qlora's RTX 6000 Ada take 1.4 times the time of the account: its text says that devices
  without NVLink waited for their links, whose bandwidth it does not give. Two devices and four
  behave as if all of the time went into links of 1.6 GB/s, a twentieth of their slots; a third is
  accounted for.
- Experts of Granite, each a slice of all (fms-moe), take 1.16 times as long as the account has it.
- Full training and LoRA under ZeRO-3 at 256 tokens (Qwen), where the host decides, take 1.2 to 1.3
  times as long: the fitting half has no such run of its own.
"""


_DOUBTED: Final[tuple[tuple[str, str], ...]] = (
    ("Qwen on two nodes, whose batch is in doubt", "Qwen"),
    ("ulysses-sp, whose speed is probably that of the whole run", "ulysses-sp"),
)
"""Runs that their own text speaks against, in the words of the page, and their sources."""


def page() -> str:
    """The page's text."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD
    for split, words in (("judge", "Judging sources"), ("fit", "Fitted sources")):
        yield f"## {words}"
        yield ""
        yield from _classes(split)
    yield from _without_doubted()
    yield from _KNOWN.splitlines()
    yield ""
    yield from _by_terms()
    yield from _by_source()
    yield from _unused()
    yield from _every_run()


def _classes(split: Split) -> Iterator[str]:
    right, pairs = ranked(split)
    then, of = BEFORE["ranked"][split]
    yield (
        f"Of {pairs:,} pairs of runs of one source, model and device whose speeds differ by 3 % or "
        f"more, {100 * right / pairs:.1f} % are ranked as measured; before {100 * then / of:.1f} %."
    )
    yield ""
    yield "| class | runs | median before | median | 95 % before | 95 % | too slow (+) or fast |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    found = by_class(split)
    for name in ("all", *sorted(found.keys() - {"all"})):
        yield _row(name, found[name], BEFORE[split].get(name))
    yield ""


def _without_doubted() -> Iterator[str]:
    yield "Some judging runs are doubted by what else is published of them (below). They stay among"
    yield "the others; without them the figures would be:"
    yield ""
    yield "| without | runs | median | 95 % | pairs ranked as measured |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    left = tuple(run for run in runs() if run.split == "judge")
    each_without = [(name, [run for run in left if not _is_of(run, of)]) for name, of in _DOUBTED]
    every = [run for run in left if not any(_is_of(run, of) for _, of in _DOUBTED)]
    for name, kept in [("any", left), *each_without, ("both", every)]:
        found = judged([run.error for run in kept])
        right, pairs = ranked_of(kept)
        share = f"{100 * right / pairs:.1f} % of {pairs}"
        yield f"| {name} | {found.runs} | {found.median:.2f} | {found.p95:.2f} | {share} |"
    yield ""


def _is_of(run: Run, source: str) -> bool:
    return run.source == source and (source != "Qwen" or run.layout.nodes > 1)


def _row(name: str, now: Judged, before: Sequence[float] | None) -> str:
    then = [f"{each:.2f}" for each in before[1:3]] if before else ["", ""]
    middle = f"{then[0]} | {now.median:.2f} | {then[1]} | {now.p95:.2f}"
    return f"| {name} | {now.runs} | {middle} | {now.signed:+.2f} |"


def _by_source() -> Iterator[str]:
    yield "## Sources"
    yield ""
    yield "| source | half | where | what | runs | median | 95 % |"
    yield "| --- | --- | --- | --- | ---: | ---: | ---: |"
    for name, source in SOURCES.items():
        found = judged([run.error for run in runs() if run.source == name])
        where = f"{source['repo']} {source['commit']}, {source['path']}"
        what = "; ".join(source[key] for key in ("about", "also") if key in source)
        figures = f"{found.runs} | {found.median:.2f} | {found.p95:.2f}"
        yield f"| {name} | {source['split']} | {where} | {what} | {figures} |"
    yield ""


def _unused() -> Iterator[str]:
    yield "Read and not used:"
    yield ""
    for each in UNUSED:
        yield f"- {each['source']}, {each['path']}: {each['why']}"
    yield ""


def _every_run() -> Iterator[str]:
    yield "## Judging runs"
    yield ""
    yield "| source | model | run | published | account | error |"
    yield "| --- | --- | --- | ---: | ---: | ---: |"
    for run in runs():
        if run.split == "judge":
            told = run.account.step_seconds
            model = run.settings["model"].rpartition("/")[2]
            speeds = f"{run.seconds:.2f} s | {told:.2f} s | {run.error:+.2f}"
            yield f"| {run.source} | {model} | {_words(run)} | {speeds} |"


_LONG: Final = 8192
_PART: Final = 0.05


def _by_terms() -> Iterator[str]:
    """Of full training and long texts, what the account's seconds are spent on."""
    yield "## Full training and long texts, by terms"
    yield ""
    yield "Terms of a twentieth and more of what the account says of a judging run."
    yield ""
    yield "| source | run | error | terms |"
    yield "| --- | --- | ---: | --- |"
    for run in runs():
        if run.split == "judge" and _is_full_or_long(run):
            terms = sorted(run.account.terms.items(), key=lambda each: -each[1])
            whole = run.account.step_seconds
            parts = (
                f"{name} {spent / whole:.0%}" for name, spent in terms if spent > _PART * whole
            )
            yield f"| {run.source} | {_words(run)} | {run.error:+.2f} | {', '.join(parts)} |"
    yield ""


def _is_full_or_long(run: Run) -> bool:
    """Whether it trains a language model in full, or on texts above the usual lengths."""
    length = run.workload.data.sequence
    return length > _LONG or ("full" in run.classes and length > 0)


def _words(run: Run) -> str:
    layout, asked = run.layout, run.workload
    method = run.settings["method"]
    if method != "full":
        method = "lora" if asked.quantization.format == "none" else "qlora"
    length = asked.data.sequence
    texts = f"{length} tokens" if length else "images"
    times = f" x {layout.batch.accumulation}" if layout.batch.accumulation > 1 else ""
    engine = layout.parallel.engine
    stage = f" ZeRO-{layout.zero.stage}" if engine == "deepspeed" else f" {engine}"
    apart = stage if layout.parallel.world > 1 else ""
    devices = f"{layout.parallel.world} x {run.row['device']}"
    return f"{method}, {devices}{apart}, batch {layout.batch.micro}{times}, {texts}"


def figures() -> str:
    """The module that what tunec says of its forecasts reads."""
    judging = [run.error for run in runs() if run.split == "judge"]
    sizes = [abs(each) for each in judging]
    return _FIGURES.format(
        runs=len(judging),
        half=_share(quantile(sizes, 0.5)),
        most=_share(quantile(sizes, 0.9)),
        late=_share(quantile([-each for each in judging], 0.9)),
    )


def _share(error: float) -> float:
    """A logarithm as the share by which a time is above another, up to whole percents."""
    return ceil(100 * expm1(error)) / 100


_FIGURES: Final = """\
\"\"\"The account's error on the published runs that judge it; generated with its accuracy page.

`tests/analyses/time/page.py` computes it, and `test_step_times.py` fails if it is stale.
\"\"\"

from typing import Final

RUNS: Final = {runs}
\"\"\"Number of runs, from sources to which nothing was fitted.\"\"\"
HALF: Final = {half:.2f}
\"\"\"Half of the runs are within this share of the account, above or below.\"\"\"
MOST: Final = {most:.2f}
\"\"\"Nine in ten runs are within this share.\"\"\"
LATE: Final = {late:.2f}
\"\"\"One in ten runs takes longer than accounted by more than this share.\"\"\"
"""


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    FIGURES.write_text(figures(), "utf-8")
