"""All that differs where a bundle is started on a CPU; Python imports this by itself at its start.

A bundle is written for GPUs. Nothing in it is changed: what its programs would ask of a GPU is
answered here, as each program's module is imported.
"""

import importlib.machinery
import os
import sys


def train_on_cpu(module):
    """`use_cpu`, since bf16 is refused otherwise, and no TF32, which only Ampere and later have.

    transformers 5.23.0 training_args.py `TrainingArguments._validate_args`, `__post_init__`.
    """
    arguments = module.TrainingArguments
    as_written = arguments.__post_init__

    def on_cpu(self):
        self.use_cpu, self.tf32 = True, None
        as_written(self)

    arguments.__post_init__ = on_cpu


def shard_on_cpu(module):
    """FSDP over gloo: accelerate looks for its plugin only where several GPUs were found.

    accelerate 1.15.0 state.py `AcceleratorState.__init__`.
    """
    state = module.PartialState
    as_written = state.__init__

    def on_cpu(self, *words, **options):
        as_written(self, *words, **options)
        several = self.distributed_type == module.DistributedType.MULTI_CPU
        if several and os.environ.get("ACCELERATE_USE_FSDP") == "true":
            self.distributed_type = module.DistributedType.MULTI_GPU

    state.__init__ = on_cpu


PATCHES = {"transformers.training_args": train_on_cpu, "accelerate.state": shard_on_cpu}


class PatchOnImport:
    """Finds the modules of `PATCHES` where they are, and patches each when it has been executed."""

    def find_spec(self, name, path=None, target=None):
        """The module's own spec, whose loader calls the patch in the end."""
        patch = PATCHES.get(name)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if patch else None
        if spec is None:
            return None
        execute = spec.loader.exec_module

        def executed(module):
            execute(module)
            patch(module)

        spec.loader.exec_module = executed
        return spec


sys.meta_path.insert(0, PatchOnImport())
