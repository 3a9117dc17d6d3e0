"""The grammar of `tunec data`."""

from typing import TYPE_CHECKING

from tunec.compiler.cli.options import (
    format_option,
    intent_options,
    new_command,
    place,
    positive,
)

if TYPE_CHECKING:
    from tunec.compiler.cli.options import Subparsers


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
    parser.add_argument(
        "--estimate",
        action="store_true",
        help="reckon tokens from characters: no tokenizer is needed, and plans call them estimates",
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
    parser.add_argument(
        "-o", "--output", type=place, metavar="FILE", help="file of lengths to write"
    )
    parser.add_argument(
        "--check", metavar="FILE", help="fail if this file of lengths is not what is measured now"
    )
    intent_options(parser)
    format_option(parser)
