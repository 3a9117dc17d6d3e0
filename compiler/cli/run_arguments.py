"""The grammar of the commands about runs and data: calibrate, choose, data, resume."""

from typing import TYPE_CHECKING

from tunec.compiler.cli.options import (
    Once,
    format_option,
    intent_options,
    new_command,
    output_option,
    positive,
    repeatable,
    set_option,
    switch,
    target_option,
)

if TYPE_CHECKING:
    from tunec.compiler.cli.options import Subparsers


def add_calibrate(commands: "Subparsers") -> None:
    """`tunec calibrate`."""
    parser = new_command(
        commands,
        "calibrate",
        "compare a run that happened with its plan, and let plans on its cluster learn from it",
        "RUN is what one run left: files or directories. Read are trainer_state.json, logs of the\n"
        "Trainer, TRL, Axolotl and DeepSpeed, LLaMA-Factory's trainer_log.jsonl, torch's memory\n"
        "statistics as JSON and memory snapshots, tables of nvidia-smi, and what the probe of\n"
        "`watch: true` writes. The numbers go to NAME.measured.yaml beside the cluster's file, or\n"
        "beside the spec where the cluster is of the catalogue; plan, lint, choose and fleet read\n"
        "them there. Without RUN, the numbers of such a file are worked out anew.\n"
        "\n"
        "examples:\n"
        "  tunec calibrate spec.yaml output/trainer_state.json train.log smi.csv\n"
        "  tunec calibrate spec.yaml out/watch --dry-run\n"
        "  tunec calibrate a100-80g-x8.measured.yaml",
    )
    parser.add_argument("spec", metavar="SPEC", help="spec file of the run")
    parser.add_argument("runs", metavar="RUN", nargs="*", help="what the run left")
    intent_options(parser)
    output_option(parser, "FILE", "write this file instead")
    switch(parser, "--dry-run", "write nothing")
    format_option(parser)


def add_choose(commands: "Subparsers") -> None:
    """`tunec choose`."""
    parser = new_command(
        commands,
        "choose",
        "plan a spec on many clusters, and order them by cost, time or energy",
        "Without --hardware, the clusters of the catalogue are tried, in the cheapest region that\n"
        "a list of prices has. Prices are shipped as dated lists (nothing is fetched); a list of\n"
        "your own (--prices, `tunec schema prices`) wins, and so does `price_per_hour` in a\n"
        "cluster's file. Hours are a forecast with loading and saving; exit code 1 where nothing\n"
        "is left.\n"
        "\n"
        "examples:\n"
        "  tunec choose spec.yaml --within 12h\n"
        "  tunec choose spec.yaml --by time --budget 200 --spot --provider aws --region 'us-*'\n"
        "  tunec choose spec.yaml --hardware p5.48xlarge h100-sxm-x8-n2 clusters/\n"
        "  tunec choose spec.yaml --sweep data.sequence=2k..32k --sweep method.lora.rank=8,64",
    )
    # without a spec, the command says what took it: `--hardware h100-sxm-x8 spec.yaml`
    parser.usage = "%(prog)s SPEC [options]"
    parser.add_argument("spec", metavar="SPEC", nargs="?", help="spec file")
    parser.add_argument(
        "--hardware",
        metavar="H",
        nargs="+",
        action="extend",
        default=[],
        help="these clusters instead: names of the catalogue, cluster files, or folders of them",
    )
    parser.add_argument(
        "--by", choices=("cost", "time", "energy"), default="cost", help="what comes first is least"
    )
    parser.add_argument(
        "--within", metavar="TIME", action=Once, help="only what ends within 12h, 90min or 2d"
    )
    parser.add_argument(
        "--budget", metavar="DOLLARS", action=Once, help="only what costs at most so many dollars"
    )
    switch(parser, "--spot", "compare spot prices instead of those on demand")
    what = "only regions that match, such as us-east-1 or 'europe-*'; may be repeated"
    repeatable(parser, "--region", "regions", "REGION", what)
    what = "only this provider, such as aws, gcp, azure or lambda; may be repeated"
    repeatable(parser, "--provider", "providers", "PROVIDER", what)
    what = "a list of prices that wins over the shipped ones; may be repeated"
    repeatable(parser, "--prices", "prices", "FILE", what)
    what = "try values in turn: path=2k..32k by doubling, or path=8,16,64; may be repeated"
    repeatable(parser, "--sweep", "sweeps", "PATH=VALUES", what)
    switch(parser, "--all", "list every cluster that fits")
    output_option(parser, "FILE", "page to write as well; `-` is stdout")
    set_option(parser)
    target_option(parser)
    format_option(parser)


def add_data(commands: "Subparsers") -> None:
    """`tunec data`."""
    parser = new_command(
        commands,
        "data",
        "measure how long training samples are, and what padding, packing and truncation cost",
        "Reads JSONL, JSON, CSV and Parquet with messages, conversations (ShareGPT), instructions\n"
        "(Alpaca), prompts with completions, text, or pairs of preferences, by the tokenizer and\n"
        "chat template of the model, from the Hub's cache or --tokenizer DIR: nothing is fetched.\n"
        "Install tunec[data]. The file that -o writes is named in a spec: `data.lengths: FILE`.\n"
        "\n"
        "examples:\n"
        "  tunec data train.jsonl --model llama-3.1-8b -o lengths.json\n"
        "  tunec data train.jsonl --model ./model --sequence 4096 --batch 4\n"
        "  tunec data --spec spec.yaml  # the spec's own data, and its plan by their lengths",
    )
    parser.add_argument("files", metavar="FILE", nargs="*", help="data files, in their order")
    parser.add_argument("--model", metavar="M", help="the model: its name, or its folder")
    parser.add_argument(
        "--tokenizer", metavar="DIR", help="a folder with tokenizer.json, instead of the cache"
    )
    parser.add_argument("--template", metavar="FILE", help="a chat template, instead of its own")
    parser.add_argument("--text", metavar="COLUMN", help="the column of text, instead of `text`")
    switch(
        parser,
        "--estimate",
        "reckon tokens from characters: no tokenizer is needed, and plans call them estimates",
    )
    parser.add_argument(
        "--sequence",
        type=positive,
        metavar="N",
        help="tokens at which samples are cut; default: the longest",
    )
    parser.add_argument(
        "--batch", type=positive, metavar="N", help="samples of a batch; default: 8"
    )
    parser.add_argument("--spec", metavar="SPEC", help="plan this spec by the lengths")
    output_option(parser, "FILE", "file of lengths to write")
    parser.add_argument(
        "--check", metavar="FILE", help="fail if this file of lengths is not what is measured now"
    )
    intent_options(parser)
    format_option(parser)


def add_resume(commands: "Subparsers") -> None:
    """`tunec resume`."""
    parser = new_command(
        commands,
        "resume",
        "show how training continues from a checkpoint on other machines",
        "Reads a folder of DeepSpeed, FSDP, the Trainer, PEFT or accelerate: names of files,\n"
        "JSON and headers; pickles are not loaded. Says whether the optimizer state goes\n"
        "along, by which conversion, and what becomes of batch, rate and data order. With --spec\n"
        "the plan on the new machines keeps the batch; without, the engine stays the same.\n"
        "\n"
        "examples:\n"
        "  tunec resume output/checkpoint-500 --hardware h100-sxm-x4\n"
        "  tunec resume output/checkpoint-500 --hardware h100-sxm-x4 --spec spec.yaml",
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="the folder of a checkpoint")
    parser.add_argument("--spec", metavar="SPEC", help="the spec of the run that is to go on")
    intent_options(parser)
    format_option(parser)
