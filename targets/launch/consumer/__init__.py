"""Asks launchers how they parse a command line; nothing is started.

Runs inside an environment that holds the release of accelerate, on the interpreter's own torch.
Verbs: `shell`, `torchrun`, `accelerate`, `config`; see the functions of these names.
"""

from tunec.targets.launch.consumer.commands import accelerate, config, shell, torchrun

VERBS = {"shell": shell, "torchrun": torchrun, "accelerate": accelerate, "config": config}
