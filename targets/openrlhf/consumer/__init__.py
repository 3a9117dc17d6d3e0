"""OpenRLHF's own programs.

Runs inside an environment that holds one release of it, never in tunec's own process. Verbs:
`schema`, `resolve`; see the functions.
"""

from tunec.targets.openrlhf.consumer.resolve import resolve
from tunec.targets.openrlhf.consumer.schema import schema

VERBS = {"schema": schema, "resolve": resolve}
