"""All that differs where a bundle is started on a CPU; Python imports this by itself at its start.

A bundle is written for GPUs. Nothing in it is changed: what its programs would ask of a GPU is
answered here, as each program's module is imported.
"""

import atexit
import importlib.machinery
import importlib.util
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


def launch_on_cpu(module):
    """Several processes: accelerate starts them where it finds several GPUs, or is told of them.

    accelerate 1.15.0 commands/launch.py `_validate_launch_command`.
    """
    as_written = module._validate_launch_command

    def on_cpu(args):
        found = as_written(args)
        args.multi_gpu |= args.num_processes > 1 and not (args.use_deepspeed or args.use_fsdp)
        return found

    module._validate_launch_command = on_cpu


def shard_on_cpu(module):
    """Ranks meet over gloo, FSDP's too: accelerate looks for its plugin only among several GPUs.

    accelerate 1.15.0 state.py `PartialState._prepare_backend`, `AcceleratorState.__init__`.
    """
    state = module.PartialState
    as_written = state.__init__

    def on_cpu(self, cpu=True, **options):
        as_written(self, cpu=True, **options)
        several = self.distributed_type == module.DistributedType.MULTI_CPU
        if several and os.environ.get("ACCELERATE_USE_FSDP") == "true":
            self.distributed_type = module.DistributedType.MULTI_GPU

    state.__init__ = on_cpu


def make_on_cpu(module):
    """FSDP 1 makes the parameters of the later ranks on the current device of a GPU.

    accelerate 1.15.0 utils/dataclasses.py `FullyShardedDataParallelPlugin.__post_init__`.
    """
    plugin = module.FullyShardedDataParallelPlugin
    as_written = plugin.__post_init__

    def on_cpu(self):
        import torch

        known, current = module.is_cuda_available, torch.cuda.current_device
        module.is_cuda_available, torch.cuda.current_device = lambda: True, lambda: "cpu"
        as_written(self)
        module.is_cuda_available, torch.cuda.current_device = known, current

    plugin.__post_init__ = on_cpu


def send_on_cpu(module):
    """FSDP 1 sends the first rank's parameters from GPUs alone, though gloo sends them from a CPU.

    A device of its own is one with a number, which a CPU has not. torch 2.13.0
    distributed/fsdp/_init_utils.py `_sync_module_params_and_buffers`, `_get_device_from_device_id`.
    """
    module._check_module_states_for_sync_module_states = lambda _: None
    module._get_device_from_device_id = lambda *_: module.torch.device("cpu")


def leave_group(module):
    """Ranks leave their group in the end: gloo's threads may abort an interpreter that goes first.

    NCCL, over which GPUs meet, has none. pytorch/pytorch#179291: SIGABRT where a process ends
    without `destroy_process_group`.
    """

    def leave():
        if module.is_initialized():
            module.destroy_process_group()

    atexit.register(leave)


def log_settings(module):
    """DeepSpeed says what it made of its file, which its log leaves out by default.

    deepspeed 0.19.8 utils/logging.py `LoggerFactory`; runtime/config.py `DeepSpeedConfig.print`.
    """
    module.logger.setLevel("INFO")
    for handler in module.logger.handlers:
        handler.setLevel("INFO")


def exchange_without_shared_memory(module):
    """Gloo alone carries what ranks exchange: an operator that only a CPU has is not compiled.

    deepspeed 0.19.8 comm/torch.py `build_shm_op`, whose answer is None on a GPU.
    """
    module.build_shm_op = lambda: None


def log_packed(module):
    """The Trainer says of its quantised modules how they hold weights, and what is trained in.

    bitsandbytes 0.50.2 nn/modules.py `Linear4bit`, `Params4bit.quant_state`, `Linear8bitLt`.
    """
    as_written = module.Trainer.train

    def on_cpu(self, *words, **options):
        packing = sys.modules.get("bitsandbytes")
        if packing is not None:
            for name, each in self.model.named_modules():
                if isinstance(each, packing.nn.Linear4bit) and each.weight.quant_state is not None:
                    state = each.weight.quant_state
                    kept = (state.quant_type, state.nested, each.compute_dtype, each.quant_storage)
                    print("packed:", name, *map(str, kept), flush=True)
                elif isinstance(each, packing.nn.Linear8bitLt):
                    print("packed:", name, each.weight.dtype, False, None, None, flush=True)
            trained = {str(each.dtype) for each in self.model.parameters() if each.requires_grad}
            print("trained beside them in:", *sorted(trained), flush=True)
        return as_written(self, *words, **options)

    module.Trainer.train = on_cpu


def collate_on_cpu(module):
    """Latents stay where they are: memory is pinned for a GPU to read it.

    simpletuner 4.10.1 helpers/training/collate.py `compute_latents`.
    """
    import torch

    torch.Tensor.pin_memory = lambda self, device=None: self


def import_simpletuner():
    """Packages that other families and trackers of SimpleTuner import are stood in for.

    torchvision's operators are declared, since it comes for another build of torch.
    """
    from pathlib import Path

    from tunec.targets import simpletuner

    file = Path(simpletuner.__path__[0], "consumer", "shims.py")
    spec = importlib.util.spec_from_file_location("shims_of_simpletuner", file)
    shims = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(shims)
    shims.install()


BEFORE = {"simpletuner": import_simpletuner}
PATCHES = {
    "accelerate.commands.launch": launch_on_cpu,
    "simpletuner.helpers.training.collate": collate_on_cpu,
    "transformers.trainer": log_packed,
    "transformers.training_args": train_on_cpu,
    "accelerate.state": shard_on_cpu,
    "accelerate.utils.dataclasses": make_on_cpu,
    "torch.distributed.distributed_c10d": leave_group,
    "torch.distributed.fsdp._init_utils": send_on_cpu,
    "deepspeed.comm.torch": exchange_without_shared_memory,
    "deepspeed.utils.logging": log_settings,
}


class PatchOnImport:
    """Finds the modules of `PATCHES` where they are, and patches each when it has been executed.

    What stands in `BEFORE` is called before a module is looked for.
    """

    def find_spec(self, name, path=None, target=None):
        """The module's own spec, whose loader calls the patch in the end."""
        BEFORE.pop(name, bool)()
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
