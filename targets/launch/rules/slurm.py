"""Directives of a Slurm batch script, and restarted jobs."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tunec.compiler.diagnostics.wording import nearly
from tunec.compiler.frontend.shell_nodes import SBATCH
from tunec.compiler.lints.context import LintContext
from tunec.compiler.lints.document import TRL, Document, Place, also
from tunec.compiler.lints.facts.launch import batch_of, count, is_unknown, launches, per_node
from tunec.compiler.lints.rule import Finding, rule
from tunec.schemas.frozen import replace
from tunec.targets.launch.lines import at_line, lines

_OF_SIZE: Final = frozenset(
    {
        *("gres", "gpus", "gpus-per-node", "gpus-per-task", "G", "nodes", "N", "ntasks", "n"),
        *("ntasks-per-node", "time", "t"),
    }
)
"""Options without which a job is another one; the space may take others out on purpose."""
_APART: Final = re.compile(r"#[ \t]+SBATCH[ \t]+--?([a-z][\w-]*)")
_TEXT: Final = re.compile(r"""(?<!<)<<-?\s*["'\\]?([A-Za-z_]\w*)""")
_VARIABLE: Final = re.compile(r"\$\{?[A-Za-z_]\w*\}?")


@rule("error", "silent", consumers=("slurm",), reads=("slurm:*",))
def batch_directive_not_read(run: LintContext) -> Iterator[Finding]:
    """sbatch does not read a line of options, or reads it differently."""
    for document in run.of("slurm"):
        began: tuple[int, str] | None = None
        late, read = list[tuple[int, str]](), set[str]()
        for number, line in _of_the_script(lines(document)):
            options = SBATCH.match(line)
            if options is None:
                apart = _APART.match(line)
                if began is None and apart is not None:
                    yield from _apart(document, number, line, apart[1])
                if began is None and line.strip() and not line.lstrip().startswith("#"):
                    began = number, line
                continue
            if began is not None:
                late += [(number, line)] if line.strip() not in read else []
                continue
            read.add(line.strip())
            if (variable := _VARIABLE.search(options[1])) is not None:
                yield _literal(document, number, line, variable[0])
        if began is not None and late:
            yield _late(document, late, began)


def _of_the_script(every: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """The lines, without here-documents, which may be another job's script."""
    end: str | None = None
    for number, line in every:
        if end is not None:
            end = None if line.strip() == end else end
            continue
        yield number, line
        begun = None if line.lstrip().startswith("#") else _TEXT.search(line)
        end = begun[1] if begun is not None else None


def _late(document: Document, late: Sequence[tuple[int, str]], began: tuple[int, str]) -> Finding:
    (number, line), more = late[0], len(late) - 1
    option = line.strip().partition(" #")[0].rstrip()
    also_late = f", and so do{'es' * (more == 1)} {more} more" if more else ""
    return Finding(
        f"`{option}` comes after the first command, so sbatch does not read it{also_late}",
        (
            at_line(document, number, 0, len(line), "a comment"),
            at_line(document, began[0], 0, len(began[1]), "the first command", primary=False),
        ),
        ("sbatch stops looking for options at the first line that is neither empty nor a comment",),
        "move every #SBATCH line above the first command",
    )


def _apart(document: Document, number: int, line: str, option: str) -> Iterator[Finding]:
    """`# SBATCH`, unless another line sets the option and this one is disabled."""
    if document.get(option.replace("-", "_")) is None:
        yield Finding(
            f"`{line.strip()}` is a comment: sbatch reads #SBATCH without a space",
            (at_line(document, number, 0, len(line), "not read"),),
            (),
            "write #SBATCH, or remove the line",
            severity="note" if document.found and option not in _OF_SIZE else "warning",
        )


def _literal(document: Document, number: int, line: str, name: str) -> Finding:
    return Finding(
        f"`{line.strip()}` is taken literally: sbatch does not expand {name}",
        (at_line(document, number, line.index(name), len(name), "not replaced"),),
        ("sbatch reads the options before any shell runs the script",),
        "write the value itself, or give the option to sbatch on the command line",
        consequence="init",
    )


_MISSPELT_OPTIONS: Final = frozenset(
    {
        *("account", "acctg_freq", "array", "batch", "begin", "chdir", "cluster_constraint"),
        *("bb", "bbf", "clusters", "comment", "constraint", "container", "container_id"),
        *("contiguous", "core_spec"),
        *("cores_per_socket", "cpu_freq", "cpus_per_gpu", "cpus_per_task", "deadline"),
        *("delay_boot", "dependency", "distribution", "error", "exclude", "exclusive", "export"),
        *("export_file", "extra", "extra_node_info", "get_user_env", "gid", "gpu_bind"),
        *("gpu_freq", "gpus", "gpus_per_node", "gpus_per_socket", "gpus_per_task", "gres"),
        *("gres_flags", "help", "hint", "hold", "ignore_pbs", "input", "job_name"),
        *("kill_on_invalid_dep", "licenses", "mail_type", "mail_user", "mcs_label", "mem"),
        *("mem_bind", "mem_per_cpu", "mem_per_gpu", "mincpus", "network", "nice", "no_kill"),
        *("no_requeue", "nodefile", "nodelist", "nodes", "ntasks", "ntasks_per_core"),
        *("ntasks_per_gpu", "ntasks_per_node", "ntasks_per_socket", "ntasks_per_tres"),
        *("oom_kill_step", "open_mode", "output"),
        *("overcommit", "oversubscribe", "parsable", "partition", "power", "prefer", "priority"),
        *("profile", "propagate", "qos", "quiet", "reboot", "requeue", "reservation"),
        *("resv_ports", "segment", "signal", "sockets_per_node", "spread_job", "stepmgr"),
        *(
            "switches",
            "tasks_per_node",
            "test_only",
            "thread_spec",
            "threads_per_core",
            "time",
            "time_min",
            "tmp",
        ),
        *("tres_bind", "tres_per_task", "uid", "usage", "use_min_nodes", "verbose", "wait"),
        *("wait_all_nodes", "wckey", "wrap"),
    }
)
_LIKE: Final = 0.85


@rule("error", "parse", consumers=("slurm",), reads=("slurm:*",))
def batch_option_misspelt(run: LintContext) -> Iterator[Finding]:
    """An option of Slurm is nearly one of sbatch's."""
    for document in run.of("slurm"):
        for name, place in document.found.items():
            near = _near(name) if "." not in name else None
            if near is not None:
                yield _option_finding(place, near)


def _near(name: str) -> str | None:
    """The option that is meant; None for a known one, its prefix, or one of a plugin."""
    if any(each.startswith(name) for each in _MISSPELT_OPTIONS):
        return None
    return nearly(name, _MISSPELT_OPTIONS, _LIKE)


def _option_finding(place: Place, near: str) -> Finding:
    name = place.path.replace("_", "-")
    return Finding(
        f"sbatch has no option --{name}",
        (place.key_label("not known"),),
        (f"sbatch: unrecognized option '--{name}': the job is not taken",),
        f"did you mean --{near.replace('_', '-')}?",
    )


_DEVICES: Final = re.compile(r"(?:(?:gres/)?gpu:)?(?:[A-Za-z][\w.-]*:)?(\d{1,6})(?:\(.*\))?")


@rule("error", "init", consumers=("torch", "accelerate", "deepspeed"), reads=("slurm:*",))
def more_than_allocated(run: LintContext) -> Iterator[Finding]:
    """A launcher starts more processes or nodes than Slurm gives the job."""
    for document in launches(run, "torchrun", "accelerate", "deepspeed"):
        batch = batch_of(run, document)
        if batch is None:
            continue
        started, given = (
            per_node(document) or processes_by_accelerate(run, document),
            _given(run, batch),
        )
        if started is not None and given is not None and started[0] > given[0]:
            yield _devices(*started, *given)
        nodes, allocated = document.get("nodes"), batch.get("nodes")
        wanted, have = count(nodes), count(allocated)
        if nodes and allocated and wanted and have and wanted > have:
            yield _nodes(nodes, allocated)


def processes_by_accelerate(run: LintContext, document: Document) -> tuple[int, Place] | None:
    """The processes of a node by accelerate's file, if the command sets no number."""
    files = run.of("accelerate") if document.value("launcher") == "accelerate" else ()
    said = ("processes", "flags.num_processes", "nodes", "flags.num_machines")
    if len(files) != 1 or any(document.get(key) or is_unknown(document, key) for key in said):
        return None
    place = files[0].get("num_processes")
    number, nodes = count(place), count(files[0].get("num_machines")) or 1
    return (number // nodes, place) if number and place and number % nodes == 0 else None


def _given(run: LintContext, batch: Document) -> tuple[int, Place] | None:
    """The devices of a node in the step of srun, else in the job."""
    steps = [each for each in launches(run, "srun") if each.name == batch.name]
    for place in (each.get(f"flags.{key}") for each in steps for key in ("gpus_per_node", "gres")):
        found = _DEVICES.fullmatch(str(place.value)) if place is not None else None
        if place is not None and found is not None and len(steps) == 1:
            return int(found[1]), place
    return given_to(batch)


def given_to(batch: Document) -> tuple[int, Place] | None:
    """The devices of a node in the job."""
    for key in ("gpus_per_node", "gres"):
        place = batch.get(key)
        found = _DEVICES.fullmatch(str(place.value)) if place else None
        if place is not None and found is not None and (key != "gres" or "gpu" in str(place.value)):
            return int(found[1]), place
    return _of_job(batch) or _of_task(batch)


def _of_job(batch: Document) -> tuple[int, Place] | None:
    """The devices of a node, if `--gpus` counts those of the whole job."""
    place, nodes = batch.get("gpus"), count(batch.get("nodes"))
    found = _DEVICES.fullmatch(str(place.value)) if place else None
    if place is None or found is None or nodes is None or int(found[1]) % nodes:
        return None
    return int(found[1]) // nodes, place


def _of_task(batch: Document) -> tuple[int, Place] | None:
    """The devices of a node, if `--gpus-per-task` counts those of its only task."""
    place, tasks = batch.get("gpus_per_task"), batch.get("ntasks_per_node")
    found = _DEVICES.fullmatch(str(place.value)) if place else None
    if place is None or found is None or tasks is None or count(tasks) != 1:
        return None
    return int(found[1]), place


def _devices(number: int, place: Place, have: int, given: Place) -> Finding:
    return Finding(
        f"{number} processes on a node, and Slurm gives {have} devices",
        (place.label(f"{number} processes"), given.label(f"{have} devices", primary=False)),
        ("process n takes device n of the job, which does not exist or is taken",),
        f"request {number} devices, or start {have} processes",
    )


def _nodes(nodes: Place, allocated: Place) -> Finding:
    return Finding(
        f"{nodes.value} nodes are waited for, and Slurm gives {allocated.value}",
        (nodes.label("waits for all"), allocated.label("nodes of the job", primary=False)),
        ("the rendezvous waits for nodes that never come",),
        "make the numbers equal",
        consequence="hang",
    )


_ASKING: Final = (
    *("gres", "gpus", "gpus_per_node", "gpus_per_task", "gpus_per_socket", "tres_per_node"),
    *("tres_per_task", "exclusive"),
)


@rule("warning", "init", consumers=("slurm",), reads=("slurm:*",))
def no_device_asked_for(run: LintContext) -> Iterator[Finding]:
    """A job that trains on several devices requests none of Slurm."""
    asking = {each.name for each in launches(run, "srun") if _asks(each)}
    for document in launches(run, "torchrun", "accelerate", "deepspeed"):
        batch, started = batch_of(run, document), per_node(document)
        if batch is None or started is None or started[0] < 2:
            continue
        if any(batch.get(key) for key in _ASKING) or document.name in asking:
            continue
        if document.get("flags.cpu") or document.value("flags.use_cpu"):
            continue
        found = _device_finding(batch, *started)
        # what a partition gives is its cluster's to say: some give whole nodes
        yield replace(found, certain=False) if batch.get("partition") else found


def _asks(step: Document) -> bool:
    """Whether a step requests devices itself."""
    return any(step.get(f"flags.{key}") for key in _ASKING)


def _device_finding(batch: Document, number: int, place: Place) -> Finding:
    return Finding(
        f"{number} processes on a node, and no device is requested",
        (place.label(f"{number} processes"), batch.lacking("gres")),
        ("a job sees the devices that it requests; some partitions give some by default",),
        f"add #SBATCH --gres=gpu:{number}",
    )


_RESUME: Final = (
    "resume_from_checkpoint",
    "auto_resume_from_checkpoints",
    "auto_resume_from_checkpoint",
)


@rule(
    "warning",
    "silent",
    consumers=("transformers", "axolotl", "llamafactory"),
    reads=("slurm:requeue",),
)
def requeued_from_the_start(run: LintContext) -> Iterator[Finding]:
    """Slurm restarts a job, which then does not resume."""
    for batch in run.of("slurm"):
        again = batch.get("requeue")
        if again is None or again.value is False:
            continue
        documents = run.of("hf", *TRL, "llamafactory", "axolotl")
        mine = [each for each in documents if not each.is_view]
        if any(_resumes(each) for each in mine):
            continue
        for document in mine:
            found = _anew(document)
            if found is not None:
                yield _requeued(again, *found)
                break


def _resumes(document: Document) -> bool:
    said = (document.value(key) for key in _RESUME)
    return any(each not in (None, False, "") for each in said) or bool(
        document.unknown & set(_RESUME)
    )


def _anew(document: Document) -> tuple[Place | None, str] | None:
    """The setting that makes it start anew, and why; None if its program looks for a checkpoint."""
    over, saves = document.get("overwrite_output_dir"), document.get("save_strategy")
    if over is not None and over.value is True:
        return over, "the directory is overwritten: no checkpoint is looked for in it"
    if saves is not None and saves.value in ("no", False):
        return saves, "no checkpoint is ever written"
    if document.kind == "llamafactory":
        return None  # it takes the last checkpoint of output_dir by itself
    if document.kind == "axolotl":
        return None, "Axolotl resumes only if auto_resume_from_checkpoints is set"
    return None, "the trainer resumes only if it is configured to, unless the script does"


def _requeued(again: Place, beside: Place | None, why: str) -> Finding:
    return Finding(
        "the job is requeued, and starts from scratch each time",
        (again.key_label("Slurm runs the script again from its first line"), *also(beside)),
        (why, "hours of work are silently lost at each preemption"),
        "resume: resume_from_checkpoint, or auto_resume_from_checkpoints: true for Axolotl",
    )
