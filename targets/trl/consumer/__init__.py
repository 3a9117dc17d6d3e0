"""TRL's scripts run on the file that is given by `--config`.

Runs inside an environment that holds one release and its release of transformers, never in tunec's
own process. Verbs: `schema`, `resolve`; see the functions.
"""

from tunec.targets.huggingface.consumer.trl_files import script
from tunec.targets.trl.consumer.schema import schema

VERBS = {"schema": schema, "resolve": script}
