"""LLaMA-Factory asked about itself.

Runs inside an environment that holds one release of it, never in tunec's own process. Its verb is
`schema`; see the function.
"""

from tunec.targets.llamafactory.consumer.schema import schema

VERBS = {"schema": schema}
