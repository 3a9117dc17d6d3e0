"""Unsloth's own command line.

Runs inside an environment that holds one release of it, never in tunec's own process. Verbs:
`schema`, `names`, `resolve`; see the functions.
"""

from tunec.targets.unsloth.consumer.names import names
from tunec.targets.unsloth.consumer.resolve import resolve
from tunec.targets.unsloth.consumer.schema import schema

VERBS = {"schema": schema, "names": names, "resolve": resolve}
