"""How the models of Kubeflow's own packages read a manifest; nothing is submitted.

Runs inside an environment with the package. Verbs: `trainjob` and `pytorchjob`.
"""

from tunec.targets.kubeflow.consumer.manifests import pytorchjob, trainjob

VERBS = {"trainjob": trainjob, "pytorchjob": pytorchjob}
