"""Entry point for questions to axolotl about itself.

Runs inside an environment that holds one release of it, never in tunec's own process. Verbs:
`schema`, `resolve`; see the functions.
"""

from tunec.targets.axolotl.consumer.resolve import resolve
from tunec.targets.axolotl.consumer.schema import schema

VERBS = {"schema": schema, "resolve": resolve}
