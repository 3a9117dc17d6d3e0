"""docs/time-accuracy.md, from the published runs and today's account; `just generate` renews it."""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import ceil, expm1, sqrt
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "memory"), str(HERE.parents[2])]
from judging import Judged, by_class, judged, ranked, ranked_of  # noqa: E402
from measured_runs import SOURCES, Run, Split, runs  # noqa: E402
from measurements import quantile  # noqa: E402

BEFORE: Final[dict[str, Any]] = json.loads((HERE / "before.json").read_text())
UNUSED: Final[Sequence[Mapping[str, str]]] = json.loads((HERE / "sources.json").read_text())[
    "unused"
]
_HEAD: Final = """\
# How accurate the time account is

The time account forecasts how many seconds a training step takes. This page compares it with step
times that others published. Each published run is written down as a workload, a layout and
devices. The account is asked about the same, and the two times are compared.

- **Error.** The error of a run is the natural logarithm of the account's time over the published
  time. Above 0 the account is too slow. 0.10 is about a tenth; 0.69 is twice. Tables show absolute
  errors, unless an error has a sign.
- **Two halves.** Each source belongs to one half. The account's constants
  (`compiler/analyses/time/coefficients.py`) are fitted to the fitting half, by
  `tests/analyses/time/fit.py`. The judging half shows how good the account is. The half of a
  source is written down before the account is asked about it.
- **Four searches.** Sources of a second, a third and a fourth search were added when the account
  was settled. All of them judge. Each of their runs was written down before the account was asked,
  and every run that could be written down without a guess was kept; of many machines with the same
  device, one was. Each search has a row of its own. What the third and the fourth one found of
  single kernels, such as bandwidths, may be used for a device's rates; whole runs may not.
- **Compiled runs.** Of six sources of the third and the fourth search layers are compiled, or
  scripted, which no plan has. torch's compiler joins the passes between products. They are taken to
  be as few as Liger's kernels leave.
- **Before.** The columns "before" show an older account, which counted no kernels. It was fitted
  to a part of fms-acceleration and to Qwen's shortest texts. It was not asked about xtuner,
  deepspeed-to-fsdp, easycontext, fastcode, vectorlm and the later searches.

## What was chosen with judging runs in view

Nothing is fitted to a judging run. But the causes of some errors were looked for after the errors
had been seen. A reader who wants untouched figures should leave out what this list names.

- fsdp_qlora: the rates of GeForce cards are a judgement. So is that parameters which FSDP keeps on
  the host travel while layers compute. Devices without a link get a third of their slots for each
  other; that follows from measurements which were looked for after the RTX 6000 Ada had been seen.
  Attention waits less for exponentials on chips that multiply less; that follows from an A100's
  figures, and was worked out after the longest text of an RTX 4090 had been seen.
- fms-moe: transformers computes experts as slices, and the host reads back in each layer how many
  tokens each has. Both were found in the source of transformers. So were the sums that experts add
  to their tokens; their speed comes from measurements of others. Gradients of the tokens that
  experts pick are added up likewise, which was read in torch's derivatives; the fitting half is
  indifferent (4.24 and 4.25).
- ulysses-sp: DeepSpeed's Adam has one thread where `accelerate launch` starts it, gradients travel
  to the host behind the backward pass, and the host narrows the weights. Copies and launches
  around the exchanges of a shared sequence are counted too. All of this was read in the sources.
- automodel, flux-qlora, Unsloth: settings, the length of texts and the kernels were read where the
  sources state them.
- Qwen: queries, keys and values share one projection (finetune.py, `lora_target_modules`). Kernels
  were traced for such layers, adapters were found to have hooks of stage 3 too, and the bucket for
  two nodes was read in the file that Qwen names.
- lambda-bert: the clock of GeForce cards, by which products in 16 bits were faster than their data
  sheet has them, makes those in fp32 and TF32 faster too. This was an oversight.
- rocm-blogs: AMD's products are divided into tiles over its units; the bandwidth of an MI300X and
  the rate of its attention are those that Azure published.
- hf-single-gpu, whose V100 waits for the host: a LayerNorm is one kernel, and layers of BERT and
  GPT-2 launch fewer kernels than a Llama's, which all models had. They were traced.
- hf-single-gpu and hf-glue, of the second search: in fp32 a unit multiplies sixteen times less in
  a clock, so that it loses no time on reading the edges of small tiles. The account had taken
  every chip for an A100 in 16 bits. It now takes each chip's own multiplications, from its data
  sheet. For GLUE the head of a language model had been written down, which a classifier does not
  have; that was corrected.
- universal-llm-trainer, of the fourth search: sdpa reads its mask, which was written down with the
  source. That the kernel for masks computes all scores, and at what rate, was looked for after the
  errors had been seen (a median of 0.90; now 0.48). The rates come from kernels that others
  measured on an A100 and an H100.
- unsloth-studio, of the fourth search: Z-Image joins four elements of the latent to one token,
  which its attention had not been counted with. The error of one run, 1.56, led to that.

Tiles, and the hooks of stage 2, come from their sources and from the fitting half, which likes a
quarter of a last wave a little more than the half that is taken.

## What the fitting half decided

The numbers are the sum that the fit makes small.

- A product takes as long as the slower of its arithmetic and its memory, not their sum (3.30 to
  3.15).
- The hooks of stage 3 are added to the device's time (3.10) and do not run beside it (3.15).
  xtuner's runs alone would have them beside it, with a median of 0.05 and not 0.08, and so would
  Qwen's full runs on two devices. Its 72B at short texts would not. The host may be two fetches
  ahead of the device and no more (deepspeed 0.19.8
  `runtime/zero/partitioned_param_coordinator.py`, `__max_ongoing_fetch_events`).
- Reading a tile's edges costs what the chip's own multiplications make of it (4.29 to 4.23; by
  then the half had more sources). The constants stayed: fitted anew they would make it 4.19, and
  the judging half would get a little worse.
"""
_KNOWN: Final = """\
## Where it is wrong

- **Qwen-7B on two nodes** takes 1.75 times as long as on one device at every length from 512
  tokens on. The batch is in doubt. The text says one sample and eight micro batches, as on one
  device, and so does its memory. The script that it names, finetune/finetune_lora_ds.sh, has two
  samples. With two the account would be off by at most 0.15 from 256 to 8,192 tokens. But the
  memory rules them out: with two samples a device would hold 51 GB at 8,192 tokens, and all four
  together held 155.5. README.md says: "We uniformly use a batch size of 1 and gradient
  accumulation of 8", "the rest of configurations are the same as other Qwen-7B experiments", and
  its unit is "s/iter". The text's number is taken. These runs are in most pairs that the account
  ranks wrongly.
- **fastcode's RTX A6000** take 4.6 times as long as its A100 of 40 GB, which have twice their rate
  and memory bandwidth. On a single A6000, of lambda-bert and prime-rl, the account has 0.83 to 1.2
  times the time. So something else holds fastcode's eight back; nothing is fitted to them.
- **lambda-bert**, whose attention is not fused, takes 0.9 times as long at the median. An RTX 4090
  takes 0.76 to 0.85 times as long, a B200 and a GH200 up to 1.25 times: half of the time
  goes into passes over memory, whose bandwidth no source states as kernels reach it.
- **ulysses-sp** takes 27 seconds a step at 8,192 tokens on one device as on four. Its data set
  streams whole books. TRL of its time (0.26, `trl/data_utils.py`, `truncate_dataset`) turns a
  thousand of them into tokens before the first of its 50 steps, on each rank. So what is published
  is probably the speed of the whole run. From 32,768 to 65,536 tokens a step takes 6 seconds more.
  The devices could not do even the added attention in that time (9 seconds at their full rate), so
  that its texts are shorter. Its memory speaks against its text too: 76.4 GB on one device, and
  23.4 GB on each of four, are what optimizer states on the devices take. The text says that they
  are on the host, and so they are accounted for.
- **xtuner's Llama 3 8B** takes twice the time of the account on two devices, as long on four, and
  0.9 times as long on eight. By the memory account 71, 47 and 32 of 79 GiB of these devices are
  tensors. Probably what stage 3 gathers in turn finds no room on two, and torch's allocator gives
  blocks back and asks for new ones in each layer (torch `c10/cuda/CUDACachingAllocator.cpp`,
  `DeviceCachingAllocator::malloc`: `release_cached_blocks`). No other run shows how long that
  takes, and the account has no term for it.
- **fsdp_qlora's RTX 6000 Ada** take 1.4 times the time of the account. Its text says that devices
  without NVLink waited for their links, whose bandwidth it does not give. Two devices and four
  behave as if all of the time went into links of 1.6 GB/s, a twentieth of their slots. A third is
  accounted for.
- **fms-moe**, experts of Granite that are slices of one weight, takes 1.13 times as long.
- **Short texts under ZeRO-3** (Qwen, 256 tokens), where the host decides, take 1.2 to 1.3 times as
  long. The fitting half has no such run of its own.
- **aws-fsdp** takes 1.7 to 5 times as long. It moves activations to the host by torch's
  `offload_wrapper`, which no plan has. The account takes TRL's way for it, which copies the inputs
  of layers while other layers compute. torch's wrapper copies all that is kept outside recomputed
  layers too, the logits and the head's weight among them, and waits for each copy. What is missing
  grows with the vocabulary: 1.4 seconds at 32,768 entries, 2.3 at 50,432.
- **rocm-blogs** takes 1.5 times as long with LoRA and 6 times with QLoRA on an MI300X. Nothing is
  known of its products in fp32, or of how fast bitsandbytes expands weights there, in kernels that
  are written for NVIDIA's. Memory bandwidth, tiles and attention of this chip follow from kernels
  that Azure measured, which were looked for after both errors had been seen.
- **philschmid-l4**, in fp32 logits and without Liger's loss, takes 1.3 to 1.8 times as long; with
  Liger's loss it is met. Its two slow runs fit 3.3 seconds a micro batch, which is the account's
  time, and 6.2 seconds more for each optimizer step. Its minutes are estimates, as its table says.
- **universal-llm-trainer**, whose texts are behind a mask, takes 0.85 to 1.3 times as long on an
  H100 and an A100, 1.4 to 1.6 times with Gemma's heads of 256, and twice as long on an RTX PRO
  6000, on which nobody measured the kernel. With QLoRA, whose attention computes in fp32, it takes
  1.15 to 1.4 times as long on an A100, 1.8 to 2 times on an H100, and 2.6 to 2.9 times on an RTX
  PRO 6000. How fast that kernel is backward in fp32 is not known: forward it has 24 tera-operations
  a second on an A100, and these runs have about 7 in all.
- **optimum-habana**, on devices of which no other source tells, takes 1.05 to 1.4 times as long on
  a Gaudi 2 with models of 2 to 20 billion parameters, and 1.3 to 2 times on a Gaudi 3, whose rate
  is four times as high on paper. BERT and RoBERTa on a Gaudi 2 take 0.75 times as long. LoRA on
  Falcon 40B, with 256 tokens a micro batch, takes 2.9 and 2 times as long.
- **smollm3-fsdp2** takes 1.75 times as long, with parameters gathered once as with parameters
  gathered twice: it does not wait for them.
- **unsloth-studio**, of one image a step, where a B200 waits for its host: 1.4 times as long with
  4-bit weights, and 0.7 to 0.8 times where blocks are compiled, whose kernels are fewer than the
  account has.
- **ado** takes 1.4 times as long. How its four devices are joined is not stated.
- **hf-titan** loses 0.15 seconds of a step where NVLink is switched off. The account hides the
  exchange of gradients behind the backward pass.
"""


_DOUBTED: Final[tuple[tuple[str, str], ...]] = (
    ("Qwen on two nodes, whose batch is in doubt", "Qwen"),
    ("ulysses-sp, whose speed is probably that of the whole run", "ulysses-sp"),
    ("aws-fsdp, whose way of moving activations no plan has", "aws-fsdp"),
)
"""Runs that cannot be what the account is asked about, in the words of the page, and sources."""


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
    yield "## Judging sources without those in doubt"
    yield ""
    yield "Some judging runs cannot be what the account is asked about (see below). They stay among"
    yield "the others. Without them the figures would be:"
    yield ""
    yield "| without | runs | median | 95 % | pairs ranked as measured |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    left = tuple(run for run in runs() if run.split == "judge")
    each_without = [(name, [run for run in left if not _is_of(run, of)]) for name, of in _DOUBTED]
    every = [run for run in left if not any(_is_of(run, of) for _, of in _DOUBTED)]
    for name, kept in [("any", left), *each_without, ("all three", every)]:
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
            speeds = f"{run.seconds:.2f} s | {told:.2f} s | {run.error:+.2f}"
            yield f"| {run.source} | {_model(run)} | {_words(run)} | {speeds} |"


_LONG: Final = 8192
_PART: Final = 0.05
_FAR: Final = 0.15


def _by_terms() -> Iterator[str]:
    """Of the worst runs and of long texts, what the account's seconds are spent on."""
    yield "## The worst runs and long texts, by terms"
    yield ""
    yield f"Judging runs whose error is above {_FAR}, and those above {_LONG:,} tokens; terms of a"
    yield "twentieth and more of what the account says."
    yield ""
    yield "| source | model | run | error | terms |"
    yield "| --- | --- | --- | ---: | --- |"
    left = (run for run in runs() if run.split == "judge" and _is_far_or_long(run))
    for run in sorted(left, key=lambda run: -abs(run.error)):
        terms = sorted(run.account.terms.items(), key=lambda each: -each[1])
        whole = run.account.step_seconds
        parts = (f"{name} {spent / whole:.0%}" for name, spent in terms if spent > _PART * whole)
        of = f"{run.source} | {_model(run)} | {_words(run)}"
        yield f"| {of} | {run.error:+.2f} | {', '.join(parts)} |"
    yield ""


def _is_far_or_long(run: Run) -> bool:
    return abs(run.error) > _FAR or run.workload.data.sequence > _LONG


def _model(run: Run) -> str:
    return str(run.settings["model"]).rpartition("/")[2]


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
    devices += f" on {layout.nodes} nodes" if layout.nodes > 1 else ""
    return f"{method}, {devices}{apart}, batch {layout.batch.micro}{times}, {texts}"


def figures() -> str:
    """The module that what tunec says of its forecasts reads."""
    judging = [run.error for run in runs() if run.split == "judge"]
    sizes = [abs(each) for each in judging]
    return _FIGURES.format(
        runs=len(judging),
        half=_share(quantile(sizes, 0.5)),
        most=_share(quantile(sizes, 0.9)),
        late=_share(_late(0.9)),
    )


def _late(share: float) -> float:
    """By what logarithm runs take longer than accounted; a source weighs the root of its runs."""
    left = [run for run in runs() if run.split == "judge"]
    rows = Counter(run.source for run in left)
    weights = {run: 1 / sqrt(rows[run.source]) for run in left}
    over, most = 0.0, (1 - share) * sum(weights.values())
    for run in sorted(left, key=lambda run: run.error):
        over += weights[run]
        if over > most:
            return -run.error
    raise AssertionError(share)


def _share(error: float) -> float:
    """A logarithm as the share by which a time is above another, up to whole percents."""
    return ceil(100 * expm1(error)) / 100


_FIGURES: Final = """\
\"\"\"The account's error on the published runs that judge it; generated with its accuracy page.

`tests/analyses/time/page.py` computes it; `just generate` renews it.
\"\"\"

from typing import Final

RUNS: Final = {runs}
\"\"\"Number of runs, from sources to which nothing was fitted.\"\"\"
HALF: Final = {half:.2f}
\"\"\"Half of the runs are within this share of the account, above or below.\"\"\"
MOST: Final = {most:.2f}
\"\"\"Nine in ten runs are within this share.\"\"\"
LATE: Final = {late:.2f}
\"\"\"One in ten runs takes longer than accounted by more than this share, if a source counts by the
root of its runs, as in the fit: one source with many runs of one model does not decide.\"\"\"
"""
