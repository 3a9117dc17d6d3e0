"""The grammar of the commands that check, compare and run files."""

from typing import TYPE_CHECKING

from tunec.compiler.cli.options import (
    format_option,
    intent_options,
    new_command,
    output_option,
    outside_option,
    place,
    policy_option,
    positive,
    reading_options,
    repeatable,
    run_options,
    seconds,
    set_option,
    settling_options,
    switch,
    target_option,
)

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from tunec.compiler.cli.options import Subparsers


def add_diff(commands: "Subparsers") -> None:
    """`tunec diff`."""
    parser = new_command(
        commands,
        "diff",
        "show the effect of a change to specs or trainer files: on decisions, clusters and files",
        "Files of trainers (train.yaml, ds_config.json, train.sh) are read as in `tunec lint`:\n"
        "what their change means in decisions, memory and time. --model, --world-size, --from,\n"
        "--software and --set SLOT=VALUE supply what such files leave open.\n"
        "\n"
        "examples:\n"
        "  tunec diff old.yaml new.yaml --hardware a100-40g-x8 --hardware h100-sxm-x8\n"
        "  tunec diff main.. specs --fail-on breaking\n"
        "  tunec diff main.. --fleet fleet.yaml --format markdown\n"
        "  tunec diff main.. train.yaml ds_config.json --hardware a100-80g-x8",
    )
    parser.add_argument(
        "old", metavar="OLD", help="a spec, a directory, a trainer file, or revisions: main.."
    )
    parser.add_argument(
        "new",
        metavar="NEW",
        nargs="*",
        help="the new spec, directory or file; with revisions, where to look for specs, or the "
        "trainer files of one run",
    )
    parser.add_argument(
        "--hardware",
        metavar="H",
        action="append",
        help="compare on this hardware; may be repeated; default: each spec's own",
    )
    parser.add_argument("--fleet", metavar="FILE", help="compare on the clusters of a fleet file")
    run_options(parser)
    set_option(parser)
    target_option(parser)
    parser.add_argument(
        "--fail-on",
        choices=("breaking", "performance", "cosmetic"),
        help="exit with 1 for changes of this class or worse",
    )
    switch(parser, "--files", "show the changes in the targets' files")
    parser.add_argument(
        "--format",
        choices=("text", "json", "markdown"),
        default="text",
        help="output format; markdown is for a pull request",
    )


def add_verify(commands: "Subparsers") -> None:
    """`tunec verify`."""
    parser = new_command(
        commands,
        "verify",
        "hand each file to the program that reads it, and compare what it resolves with the plan",
        "Runs the real programs, without a GPU. Each release gets its own environment, which is\n"
        "created on demand (from PyPI, each file checked by its digest) and kept; what is\n"
        "fetched is listed first.\n"
        "A directory is the output of `tunec compile -o`, whose spec lies in it or is named by\n"
        "--spec, or a directory of specs. Whatever cannot be checked is listed.\n"
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
    repeatable(
        parser,
        "--sources",
        "sources",
        "DIR",
        "a clone of a trainer's repository that is on no package index; may be repeated; "
        "otherwise its pinned files are fetched",
    )
    switch(parser, "--allow-unchecked", "exit with 0 even if something was not checked")
    parser.add_argument(
        "--time-limit",
        type=seconds,
        metavar="SECONDS",
        help="time limit for each environment; default: 180 to 300, depending on the program",
    )
    _offline_option(parser)
    format_option(parser)


def add_rehearse(commands: "Subparsers") -> None:
    """`tunec rehearse`."""
    parser = new_command(
        commands,
        "rehearse",
        "run the files for real at a small scale on this machine, and compare with the plan",
        "Shrinks the model; weights and data are random. Slots that cannot be checked are\n"
        "listed.\n\n"
        "example:\n  tunec compile spec.yaml -o out && tunec rehearse spec.yaml --files out",
    )
    parser.add_argument("spec", metavar="SPEC", help="spec file")
    intent_options(parser)
    parser.add_argument("--files", metavar="DIR", help="output directory of `tunec compile -o DIR`")
    parser.add_argument("--ranks", type=positive, default=2, metavar="N", help="most processes (2)")
    parser.add_argument(
        "--steps", type=positive, default=3, metavar="N", help="optimizer steps (3)"
    )
    parser.add_argument("--time-limit", type=seconds, metavar="SECONDS", help="default: 300")
    _offline_option(parser)
    format_option(parser)


def _offline_option(parser: "ArgumentParser") -> None:
    switch(parser, "--offline", "fetch nothing; what is not here is not checked")


def add_lint(commands: "Subparsers") -> None:
    """`tunec lint`."""
    parser = new_command(
        commands,
        "lint",
        "find faults in existing configs, read together",
        "Files are recognised by their content, and the files that they refer to are read too.\n"
        "A folder stands for the configs below it. Files that name each other form one run.\n"
        "Two of one kind are alternatives: each is read with the files of its folder that it\n"
        "may be used with (docs/lint-in-ci.md).\n\n"
        "tunec.toml, or [tool.tunec] in pyproject.toml, excludes paths, sets the level of rules,\n"
        "everywhere or by path, and says which hardware, software and baseline hold\n"
        "(docs/lint-settings.md). What the command line says wins.\n\n"
        "examples:\n  tunec lint ds_config.json training_args.yaml --hardware p100-x1\n"
        "  tunec lint train.sh --software transformers=4.44 --format sarif\n"
        "  tunec lint .",
    )
    reading_options(parser)
    repeatable(parser, "--allow", "allow", "NAME", "ignore the findings of this rule")
    _settings_options(parser)
    parser.add_argument(
        "--baseline", metavar="FILE", help="ignore the findings listed in this file"
    )
    switch(parser, "--write-baseline", "write all current findings to the baseline")
    _fix_options(parser)
    parser.add_argument(
        "--fail-on",
        choices=("error", "warning"),
        default="error",
        help="lowest severity that makes the exit code 1",
    )
    parser.add_argument(
        "--format",
        choices=("text", "json", "sarif", "github", "gitlab", "junit"),
        default="text",
        help="output format; sarif is for code hosts, github for GitHub Actions, gitlab for its "
        "code quality report, junit for reports of tests",
    )


def _settings_options(parser: "ArgumentParser") -> None:
    settings = parser.add_mutually_exclusive_group()
    settings.add_argument(
        "--config",
        type=place,
        metavar="FILE",
        help="a tunec.toml, or a pyproject.toml with [tool.tunec]; default: the nearest one upward "
        "in the repository",
    )
    switch(settings, "--no-config", "read no file of settings")


def _fix_options(parser: "ArgumentParser") -> None:
    switch(
        parser,
        "--fix",
        "apply the safe fixes, and show as a diff those that change what is trained",
    )
    switch(parser, "--unsafe", "with --fix: apply those that change it as well")
    switch(parser, "--diff", "with --fix: write nothing, and show all as a diff")


def add_trace(commands: "Subparsers") -> None:
    """`tunec trace`."""
    parser = new_command(
        commands,
        "trace",
        (
            "build a plan's real model without weights and compare its measured memory with the "
            "account"
        ),
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
        "--save", metavar="FILE", help="save the measurements as the model's calibration"
    )
    format_option(parser)


def add_fleet(commands: "Subparsers") -> None:
    """`tunec fleet`."""
    parser = new_command(
        commands,
        "fleet",
        "compile many specs for many clusters, incrementally",
        "Writes DIR/SPEC/CLUSTER/TARGET/FILE and DIR/tunec.lock. Only stale pairs are compiled\n"
        "again. --check finds files that were edited, are stale or are missing. A build that\n"
        "would replace an edited file writes nothing and says which, unless --overwrite is given.\n"
        "\n"
        "examples:\n"
        "  tunec fleet fleet.yaml -o build -j 4\n"
        "  tunec fleet fleet.yaml -o build --check",
    )
    parser.add_argument("file", metavar="FILE", help="fleet file (`tunec schema fleet`)")
    parser.add_argument("-o", "--output", type=place, metavar="DIR", required=True, help="the tree")
    parser.add_argument("-j", "--jobs", type=positive, default=1, metavar="N", help="processes")
    switch(parser, "--check", "write nothing; list what differs and fail if anything does")
    switch(parser, "--prune", "remove files in the tree that belong to no pair")
    switch(
        parser,
        "--overwrite",
        "replace files that were edited since they were written; otherwise none is written",
    )
    outside_option(parser)
    parser.add_argument("--sort", metavar="COLUMN", help="order the summary by this column")
    parser.add_argument(
        "--format",
        choices=("text", "markdown", "csv", "json"),
        default="text",
        help="format of the summary",
    )


def add_report(commands: "Subparsers") -> None:
    """`tunec report`."""
    parser = new_command(
        commands,
        "report",
        "write an HTML page about a plan, or about a built fleet",
        "The page is one self-contained file. For a spec it shows memory, time, the search, and\n"
        "every decision with its reason; for a tree, what fits where.\n"
        "\n"
        "examples:\n"
        "  tunec report spec.yaml -o report.html\n"
        "  tunec report build -o fleet.html",
    )
    parser.add_argument(
        "what", metavar="SPEC|DIR", help="a spec, or the output directory of `tunec fleet`"
    )
    intent_options(parser)
    policy_option(parser)
    output_option(parser, "FILE", "file to write; default, or with -: stdout")
    format_option(parser)


def add_translate(commands: "Subparsers") -> None:
    """`tunec translate`."""
    parser = new_command(
        commands,
        "translate",
        "translate existing configs to another trainer, or to another release",
        "Files are recognised by their content, and the files that they refer to are read too.\n"
        "For keys that they leave out, the current reader's defaults are written. Nothing is\n"
        "dropped silently: whatever the new program cannot express, the files do not state, or\n"
        "tunec does not understand is listed. If that would change the run, no answers are "
        "generated.\n"
        "\n"
        "--to spec writes the run as a spec: its fields and pins hold the values that were "
        "read,\n"
        "and keys that tunec does not decide are passed through. The spec is also written when\n"
        "something is left to settle: each such place is marked and is an error, and the exit\n"
        "code is 1.\n"
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
        "target to write, such as huggingface@5.23; may be repeated; or spec",
    )
    settling_options(parser)
    output_option(parser, "DIR", "output directory; with --to spec, the file")
    switch(parser, "--check", "write nothing; fail if the files in DIR differ")
    format_option(parser)
