"""The grammar of the commands that check, compare and prove."""

from typing import TYPE_CHECKING

from tunec.compiler.cli.options import (
    format_option,
    intent_options,
    new_command,
    place,
    policy_option,
    positive,
    reading_options,
    repeatable,
    seconds,
    set_option,
    settling_options,
    target_option,
)

if TYPE_CHECKING:
    from tunec.compiler.cli.options import Subparsers


def add_diff(commands: "Subparsers") -> None:
    """`tunec diff`."""
    parser = new_command(
        commands,
        "diff",
        "say what a change of specs does: to intent, decisions, clusters and files",
        "examples:\n"
        "  tunec diff old.yaml new.yaml --hardware a100-40g-x8 --hardware h100-sxm-x8\n"
        "  tunec diff main.. specs --fail-on breaking\n"
        "  tunec diff main.. --fleet fleet.yaml --format markdown",
    )
    parser.add_argument("old", metavar="OLD", help="a spec, a directory, or revisions: main..")
    parser.add_argument(
        "new", metavar="NEW", nargs="?", help="the other; with revisions, where to look for specs"
    )
    parser.add_argument(
        "--hardware",
        metavar="H",
        action="append",
        help="compare on this hardware; may be repeated; each spec's own if absent",
    )
    parser.add_argument(
        "--fleet", metavar="FILE", help="compare on the clusters of a fleet file, as it builds them"
    )
    set_option(parser)
    target_option(parser)
    parser.add_argument(
        "--fail-on",
        choices=("breaking", "performance", "cosmetic"),
        help="exit with 1 for changes that are this grave or graver",
    )
    parser.add_argument(
        "--files", action="store_true", help="show what changes in the files of the targets"
    )
    parser.add_argument(
        "--format",
        choices=("text", "json", "markdown"),
        default="text",
        help="for people, for machines, or for a pull request",
    )


def add_verify(commands: "Subparsers") -> None:
    """`tunec verify`."""
    parser = new_command(
        commands,
        "verify",
        "hand each file to the program that reads it, and compare what it resolves with the plan",
        "Runs the real programs, without a GPU, each release in an environment of its own that is\n"
        "made on demand (PyPI) and kept. A directory is what `tunec compile -o` wrote, with a\n"
        "spec in it or named by --spec, or one that holds specs. What cannot be checked is\n"
        "listed.\n"
        "\n"
        "examples:\n"
        "  tunec verify spec.yaml --target deepspeed@0.18 --target deepspeed@0.19\n"
        "  tunec compile spec.yaml -o out && tunec verify out --spec spec.yaml",
    )
    parser.add_argument("what", metavar="SPEC|DIR", nargs="+", help="specs, or directories")
    intent_options(parser)
    parser.add_argument(
        "--spec", metavar="SPEC", help="the spec that a directory was compiled from"
    )
    parser.add_argument(
        "--sources",
        metavar="DIR",
        action="append",
        default=[],
        help="a clone of a trainer's repository that is on no package index; may be repeated; "
        "otherwise its pinned files are fetched",
    )
    parser.add_argument(
        "--allow-unchecked", action="store_true", help="exit 0 though something was not checked"
    )
    parser.add_argument(
        "--time-limit",
        type=seconds,
        metavar="SECONDS",
        help="for all questions to one environment; by default 180 to 300, by program",
    )
    format_option(parser)


def add_rehearse(commands: "Subparsers") -> None:
    """`tunec rehearse`."""
    parser = new_command(
        commands,
        "rehearse",
        "run the files small, for real, on this machine, and compare what ran with the plan",
        "Shrinks the model; weights and data are random. What cannot be shown here is listed.\n\n"
        "example:\n  tunec compile spec.yaml -o out && tunec rehearse spec.yaml --files out",
    )
    parser.add_argument("spec", metavar="SPEC", help="spec file")
    intent_options(parser)
    parser.add_argument("--files", metavar="DIR", help="what `tunec compile -o DIR` wrote")
    parser.add_argument("--ranks", type=positive, default=2, metavar="N", help="most processes (2)")
    parser.add_argument(
        "--steps", type=positive, default=3, metavar="N", help="optimizer steps (3)"
    )
    parser.add_argument("--time-limit", type=seconds, metavar="SECONDS", help="300 if not given")
    format_option(parser)


def add_lint(commands: "Subparsers") -> None:
    """`tunec lint`."""
    parser = new_command(
        commands,
        "lint",
        "say what is wrong with configs that are there, read together",
        "Files are recognised by their content, and files that they refer to are read too. They\n"
        "are one run; where two of them are of one kind, each directory is one, or each of the\n"
        "files. A folder stands for the configs below it.\n\n"
        "examples:\n  tunec lint ds_config.json training_args.yaml --hardware p100-x1\n"
        "  tunec lint train.sh --software transformers=4.44 --format sarif\n"
        "  tunec lint .",
    )
    reading_options(parser)
    parser.add_argument(
        "--allow", metavar="NAME", action="append", default=[], help="leave out what a rule finds"
    )
    parser.add_argument("--baseline", metavar="FILE", help="leave out the findings listed there")
    parser.add_argument(
        "--write-baseline", action="store_true", help="list all present findings in the baseline"
    )
    parser.add_argument("--fix", action="store_true", help="mend what can safely be mended")
    parser.add_argument(
        "--fail-on",
        choices=("error", "warning"),
        default="error",
        help="the least severity that makes the exit code 1",
    )
    parser.add_argument(
        "--format",
        choices=("text", "json", "sarif", "github"),
        default="text",
        help="for people, programs, code hosts, or GitHub Actions",
    )


def add_trace(commands: "Subparsers") -> None:
    """`tunec trace`."""
    parser = new_command(
        commands,
        "trace",
        "build a plan's real model without weights and measure its memory beside the account",
        "Runs forward, backward and the optimizer of the installed torch, transformers,\n"
        "PEFT and DeepSpeed on tensors without data: no GPU, little memory, seconds for 8B.\n"
        "\n"
        "examples:\n"
        "  tunec trace spec.yaml\n"
        "  tunec trace spec.yaml --set pin.zero.stage=3 --format json",
    )
    parser.add_argument("spec", metavar="SPEC", help="spec file")
    intent_options(parser)
    parser.add_argument(
        "--save", metavar="FILE", help="keep the measured lines as the model's calibration"
    )
    format_option(parser)


def add_fleet(commands: "Subparsers") -> None:
    """`tunec fleet`."""
    parser = new_command(
        commands,
        "fleet",
        "compile many specs for many clusters, incrementally",
        "The tree is DIR/SPEC/CLUSTER/TARGET/FILE, with tunec.lock. Only what is stale is\n"
        "compiled again. --check finds what was edited, is stale or is missing.\n"
        "\n"
        "examples:\n"
        "  tunec fleet fleet.yaml -o build -j 4\n"
        "  tunec fleet fleet.yaml -o build --check",
    )
    parser.add_argument("file", metavar="FILE", help="fleet file (`tunec schema fleet`)")
    parser.add_argument("-o", "--output", type=place, metavar="DIR", required=True, help="the tree")
    parser.add_argument("-j", "--jobs", type=positive, default=1, metavar="N", help="processes")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail with a list of what differs"
    )
    parser.add_argument(
        "--prune", action="store_true", help="remove files of the tree that belong to no pair"
    )
    parser.add_argument("--sort", metavar="COLUMN", help="order the summary by this column")
    parser.add_argument(
        "--format",
        choices=("text", "markdown", "csv", "json"),
        default="text",
        help="form of the summary",
    )


def add_report(commands: "Subparsers") -> None:
    """`tunec report`."""
    parser = new_command(
        commands,
        "report",
        "show a plan, or what a fleet was built to, as one page for a browser",
        "The page is one file that loads nothing: memory, time, the search, every decision with\n"
        "its reason; of a tree, what fits where.\n"
        "\n"
        "examples:\n"
        "  tunec report spec.yaml -o report.html\n"
        "  tunec report build -o fleet.html",
    )
    parser.add_argument("what", metavar="SPEC|DIR", help="a spec, or what `tunec fleet` wrote")
    intent_options(parser)
    policy_option(parser)
    parser.add_argument(
        "-o", "--output", type=place, metavar="FILE", help="where to; stdout if absent or -"
    )
    format_option(parser)


def add_translate(commands: "Subparsers") -> None:
    """`tunec translate`."""
    parser = new_command(
        commands,
        "translate",
        "write configs that are there in the words of another trainer, or of another release",
        "Files are recognised by their content, and files that they refer to are read too. What\n"
        "they leave out is written as the program that reads them now would take it. Nothing is\n"
        "dropped in silence: what the new program cannot say, what the files do not say and what\n"
        "is not understood is listed, and nothing is written where it changes the run.\n"
        "\n"
        "--to spec says the run as a spec, whose fields and pins give the values that were read;\n"
        "keys that tunec does not decide are passed through. It is written also where something\n"
        "is left to settle: such places are marked and are errors, and the exit code is 1.\n"
        "\n"
        "examples:\n"
        "  tunec translate training_args.yaml --from huggingface@4.44 --to huggingface@5.23\n"
        "  tunec translate train.sh ds_config.json --to accelerate --to huggingface -o out\n"
        "  tunec translate accelerate.yaml --to deepspeed --set batch.micro=2\n"
        "  tunec translate train.sh ds_config.json --to spec --hardware a100-80g-x8 -o spec.yaml",
    )
    reading_options(parser)
    repeatable(
        parser,
        "--to",
        "targets",
        "NAME[@VERSION]",
        "whose files to write, such as huggingface@5.23; may be repeated; or spec",
    )
    settling_options(parser)
    parser.add_argument(
        "-o",
        "--output",
        type=place,
        metavar="DIR",
        help="directory to write to; for --to spec the file",
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if what is in DIR differs"
    )
    format_option(parser)
