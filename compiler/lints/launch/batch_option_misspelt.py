"""An option for Slurm that is nearly one of sbatch's."""

from collections.abc import Iterator
from typing import Final

from tunec.compiler.diagnostics.wording import nearly
from tunec.compiler.lints.place import Place
from tunec.compiler.lints.rule import Finding, Rule
from tunec.compiler.lints.run import Run

_OPTIONS: Final = frozenset(
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
        *("switches", "test_only", "thread_spec", "threads_per_core", "time", "time_min", "tmp"),
        *("tres_bind", "tres_per_task", "uid", "usage", "use_min_nodes", "verbose", "wait"),
        *("wait_all_nodes", "wckey", "wrap"),
    }
)
_LIKE: Final = 0.85


def _check(run: Run) -> Iterator[Finding]:
    for document in run.of("slurm"):
        for name, place in document.found.items():
            near = _near(name) if "." not in name else None
            if near is not None:
                yield _finding(place, near)


def _near(name: str) -> str | None:
    """The option that is meant; None for a known one, its beginning, or one of a plugin's."""
    if any(each.startswith(name) for each in _OPTIONS):
        return None
    return nearly(name, _OPTIONS, _LIKE)


def _finding(place: Place, near: str) -> Finding:
    name = place.path.replace("_", "-")
    return Finding(
        f"sbatch has no option --{name}",
        (place.key_label("not known"),),
        (f"sbatch: unrecognized option '--{name}': the job is not taken",),
        f"did you mean --{near.replace('_', '-')}?",
    )


RULE = Rule(
    name="batch-option-misspelt",
    severity="error",
    consequence="parse",
    consumers=("slurm",),
    sources=("Slurm 24.05 sbatch manual page, OPTIONS; getopt_long takes the beginning of a name",),
    check=_check,
)
