"""axolotl asked about itself.

Runs inside an environment that holds one release of it, never in tunec's own process. Its verb is
`schema`; see the function.
"""

from tunec.targets.axolotl.consumer.schema import schema

VERBS = {"schema": schema}
