"""Entry point for questions to accelerate about the file of `accelerate launch --config_file`.

Runs inside an environment that holds one release, never in tunec's own process. Verbs: `schema`,
`defaults`, `resolve`; see the functions.
"""

from tunec.targets.accelerate.consumer.resolve import defaults, resolve
from tunec.targets.accelerate.consumer.schema import schema

VERBS = {"schema": schema, "defaults": defaults, "resolve": resolve}
