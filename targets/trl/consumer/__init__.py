"""TRL's scripts asked about the file that they are given by `--config`.

Runs inside an environment that holds one release with the transformers that it goes with, never in
tunec's own process. Verbs: `schema`, `resolve`; see the functions.
"""

from tunec.targets.huggingface.consumer.trl_files import script
from tunec.targets.trl.consumer.schema import schema

VERBS = {"schema": schema, "resolve": script}
