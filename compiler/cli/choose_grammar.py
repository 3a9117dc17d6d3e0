"""The grammar of `tunec choose`."""

from typing import TYPE_CHECKING

from tunec.compiler.cli.options import (
    Once,
    format_option,
    new_command,
    place,
    repeatable,
    set_option,
    target_option,
)

if TYPE_CHECKING:
    from tunec.compiler.cli.options import Subparsers


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
    parser.add_argument(
        "--spot", action="store_true", help="compare spot prices instead of those on demand"
    )
    what = "only regions that match, such as us-east-1 or 'europe-*'; may be repeated"
    repeatable(parser, "--region", "regions", "REGION", what)
    what = "only this provider, such as aws, gcp, azure or lambda; may be repeated"
    repeatable(parser, "--provider", "providers", "PROVIDER", what)
    what = "a list of prices that wins over the shipped ones; may be repeated"
    repeatable(parser, "--prices", "prices", "FILE", what)
    what = "try values in turn: path=2k..32k by doubling, or path=8,16,64; may be repeated"
    repeatable(parser, "--sweep", "sweeps", "PATH=VALUES", what)
    parser.add_argument("--all", action="store_true", help="list every cluster that fits")
    parser.add_argument(
        "-o", "--output", type=place, metavar="FILE", help="page to write as well; `-` is stdout"
    )
    set_option(parser)
    target_option(parser)
    format_option(parser)
