"""NeMo AutoModel's own classes.

Runs inside an environment that holds one release of it, never in tunec's own process. Verbs:
`schema`, `resolve`; see the functions.
"""

from tunec.targets.nemo_automodel.consumer.resolve import resolve
from tunec.targets.nemo_automodel.consumer.schema import schema

VERBS = {"schema": schema, "resolve": resolve}
