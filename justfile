# Everything that is done with this repository has a name here; `just` alone lists the names.

set shell := ["bash", "-euo", "pipefail", "-c"]

# the tools of .venv where there is one, else those of the active environment
export PATH := justfile_directory() / ".venv/bin:" + env("PATH")

# modules are compiled once, and not by each of the thousand processes that tests start
export PYTHONDONTWRITEBYTECODE := ""

[private]
default:
    @just --list --unsorted

# all that CI runs, the quick checks first
check: ready test

# the quick checks, and beside them what the tests will ask for
[private, parallel]
ready: quick fetch

# all checks but the tests, beside each other
[parallel]
quick: format-check lint types imports generated

# fail if a file is not formatted
format-check:
    ruff format --check .

# the linter's rules, docstrings and absolute imports among them
lint:
    ruff check .

# strict types of the package, its generators and its benchmarks
types:
    mypy
    mypy -p docs
    mypy benchmarks/*.py

# who may import whom
imports:
    lint-imports

# fail if anything derived is stale (`just generate` renews it)
generated:
    python -m docs.generate --check

# fetch the consumers that every run of the tests asks, those that are not here yet (needs PyPI)
fetch:
    python -m tests.recording.starts
    python -m docs.try_out --fetch

# three workers: on two cores, one of them mostly waits for a program that it started
# every test; arguments go to pytest, as in `just test -k house`
test *arguments:
    python -m pytest -n 3 --dist loadfile --no-loadscope-reorder {{ arguments }}

# all that there is: every question asked anew, more examples, and the tests marked nightly (hours)
nightly *arguments: && kills schemas-check
    python -m pytest -n 2 --dist loadfile -m "" --asking anew --hypothesis-profile nightly {{ arguments }}

# spoil sound inputs of every reader, as many as are wanted: --cases 1000000 --seed 1 -j 2 --keep FOLDER
fuzz *arguments:
    python -m tests.fuzz {{ arguments }}

# kill what writes at steps that are drawn, so many times, and judge what is left: `just kills 1000 --seed 2`
kills *arguments:
    python -m tests.kills {{ arguments }}

# ask the programs what is not recorded, and keep it: for the test files named, else for all that have answers
record *files:
    python -m pytest -n 2 --dist loadfile --asking record {{ if files == "" { "$(python -m tests.recording.store)" } else { files } }}

# format everything in place, and mend what the linter can mend
format:
    ruff format .
    ruff check --fix-only .

# renew everything derived: JSON Schemas, reference pages
generate:
    python -m docs.generate

# build the site into build/site/html, strictly and with every link checked (pip install '.[site]')
site *arguments:
    python -m docs.site {{ arguments }}

# build the page that plans in the browser, and serve it on this machine (needs npm and PyPI once)
try-out:
    python -m docs.try_out --serve

# begin a lint rule: tells which stand near it, then writes its skeleton and page (--help)
[positional-arguments]
new-rule *arguments:
    @python -m docs.new_rule "$@"

# renew the consumers' JSON Schemas, asking each release of each consumer (needs PyPI, minutes)
schemas:
    python -m tunec.targets.generate_schemas
    python -m tunec.targets.generate_script_schemas
    python -m tunec.targets.simpletuner.schema

# renew the flags of diffusers' example scripts, from a clone of its repository and the tags of its releases
example-flags clone *releases:
    python -m tunec.targets.generate_example_flags {{ clone }} {{ releases }}

# lock the digests of every package that tunec installs, and of those given (needs PyPI)
lock *pins:
    python -m tunec.targets.generate_lock {{ pins }}

# fail if they are not what the consumers say (needs PyPI, minutes)
schemas-check:
    python -m tunec.targets.generate_schemas --check
    python -m tunec.targets.generate_script_schemas --check
    python -m tunec.targets.simpletuner.schema --check

# write what the literate cases find as what they expect; read the difference before you keep it
bless:
    python -m pytest tests/cases tests/fleet -q --bless

# start-up, plans per second, and the accounts; see benchmarks/README.md
bench:
    python benchmarks/startup.py
    python benchmarks/throughput.py
    python -m pytest benchmarks -q --benchmark-only --benchmark-columns=min,median,rounds

# trace every combination of docs/memory-accuracy.md anew (half an hour on two cores)
trace-table *arguments:
    python benchmarks/trace_table.py {{ arguments }}

# trace default plans of the catalogue's models that have no row yet (hours on one core), for the same page
plan-sweep *arguments:
    python benchmarks/plan_sweep.py {{ if arguments == "" { "--missing" } else { arguments } }}
    python benchmarks/trace_table.py --render

# try to derive a card of every family of transformers, for docs/derived-cards.md (half an hour on two cores)
card-sweep *arguments:
    python benchmarks/card_sweep.py {{ arguments }}
    python -m docs.generate

# the same of every transformer and UNet of diffusers, for docs/derived-denoisers.md (a quarter of an hour)
denoiser-sweep *arguments:
    python benchmarks/denoiser_sweep.py {{ arguments }}
    python -m docs.generate

# build the wheel into dist/
wheel:
    python -m build --wheel --outdir dist

# fit the bound on what the driver reports to half of the measured runs, and judge it by the others
fit-margin:
    python tests/analyses/memory/fit_margin.py

# fit the constants of the time account to half of the published step times, and judge them by the others
fit-time:
    python tests/analyses/time/fit.py
