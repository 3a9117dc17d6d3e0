"""Random plans that hold together: what the pipeline could decide, and what pins would change."""

import math
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from tests.plans import BASE

from tunec.compiler.ir.plan import Plan
from tunec.compiler.ir.slots import SLOTS
from tunec.schemas.data_paths import FORMATS
from tunec.schemas.terms import BESIDE_TRAINING, VISIBLE

Values = dict[str, Any]

_NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,12}", fullmatch=True)
_PATHS = st.lists(_NAMES, min_size=1, max_size=3).map("/".join)
_MODULES = st.lists(
    st.sampled_from(("q_proj", "k_proj", "v_proj", "o_proj", "query_key_value", "self_attn.out")),
    min_size=1,
    max_size=4,
    unique=True,
).map(tuple)
_EXPERTS = ("experts.gate_up_proj", "experts.down_proj")
_PATTERN = r"llm\..*layers\.\d+\.self_attn\.(q_proj|v_proj)"
_KERNELS: Mapping[str, tuple[str, ...]] = {
    "adamw": ("fused", "foreach", "loop", "own"),
    "adamw_8bit": ("bitsandbytes",),
    "paged_adamw_8bit": ("bitsandbytes",),
    "paged_adamw_32bit": ("bitsandbytes",),
    "adafactor": ("own",),
    "lion": ("own",),
    "sgd": ("foreach", "fused", "loop"),
}
_BUCKETS = st.integers(1, 10**9)
_POSITIVE = st.floats(1e-12, 1e3, allow_subnormal=False)


@st.composite
def plans(
    draw: st.DrawFn,
    engine: str | None = None,
    objectives: tuple[str, ...] = ("sft",),
    predictions: tuple[str, ...] = ("loss",),
) -> Plan:
    """A plan whose slots agree; `engine` fixes what runs under it."""
    values: Values = {"objective.kind": draw(st.sampled_from(objectives))}
    values |= draw(_models(values))
    values |= draw(_devices(engine))
    values |= draw(_data(values))
    values |= draw(_precision(values))
    values |= draw(_adapter(values))
    values |= draw(_objective(values))
    values |= draw(_evaluation(predictions, values))
    values |= draw(_zero(values))
    values |= draw(_optimizer(values))
    values |= draw(_states(values))
    values |= draw(_loop(values))
    values |= draw(_fsdp(values))
    values |= draw(_launch(values))
    values |= draw(_job())
    return Plan.of(values)


@st.composite
def _models(draw: st.DrawFn, values: Values) -> Values:
    kinds = ("causal-lm", "vision-language", "encoder-decoder", "encoder", "diffusion")
    if values["objective.kind"] == "reward":
        kinds = ("sequence-classifier",)
    return {
        "model.path": draw(_PATHS),
        "model.family": draw(_NAMES),
        "model.kind": draw(st.sampled_from(kinds)),
        "model.parameters": draw(st.integers(1, 10**12)),
        "model.trust_remote_code": draw(st.booleans()),
        "model.published": draw(st.sampled_from(("none", "mxfp4", "fp8"))),
        "attention.implementation": draw(st.sampled_from(("eager", "sdpa", "flash_attention_2"))),
    }


@st.composite
def _devices(draw: st.DrawFn, engine: str | None) -> Values:
    engine = engine or draw(st.sampled_from(("none", "ddp", "deepspeed", "fsdp")))
    nodes, per_node = draw(st.integers(1, 3)), draw(st.integers(1, 8))
    if engine == "none":
        world = 1
    else:
        least = 2 if engine in ("ddp", "fsdp") else 1
        every = sorted({*range(1, per_node + 1), *(n * per_node for n in range(1, nodes + 1))})
        world = draw(st.sampled_from([n for n in every if n >= least] or [nodes * per_node]))
    if engine in ("ddp", "fsdp") and world < 2:
        nodes, per_node, world = 1, 2, 2
    numbers = tuple(str(number) for number in range(per_node))
    uuids = tuple(f"GPU-{number:08x}" for number in range(per_node))
    memory = draw(st.integers(2**30, 2**37))
    return {
        "devices.model": draw(_NAMES),
        "devices.vendor": draw(st.sampled_from(tuple(VISIBLE))),
        "devices.nodes": nodes,
        "devices.per_node": per_node,
        "devices.visible": draw(st.sampled_from(((), numbers, uuids))),
        "devices.capability": draw(st.sampled_from(("7.0", "8.0", "9.0", None))),
        "devices.memory": memory,
        "devices.budget": memory,
        "devices.reserve": 0,
        "devices.host_budget": draw(st.none() | st.integers(1, 2**42)),
        "parallel.engine": engine,
        "parallel.world": world,
        "parallel.data": world,
        "parallel.tensor": 1,
        "parallel.sequence": 1,
    }


@st.composite
def _data(draw: st.DrawFn, values: Values) -> Values:
    kind = values["model.kind"]
    sees = kind in ("vision-language", "diffusion")
    paints = kind == "diffusion"
    given = draw(st.lists(_PATHS, max_size=2).map(tuple)) if paints else ()
    images = 1 + len(given) if paints else draw(st.integers(0, 3)) if sees else 0
    side = draw(st.integers(1, 2048)) if images else 0
    is_text = not images and values["objective.kind"] == "sft"
    formats = (None, *(each for each in FORMATS if each != "messages"))
    tokens = images * draw(st.integers(1, 2000)) if kind == "vision-language" else 0
    more = () if given else draw(st.just(()) | st.lists(_PATHS, max_size=3).map(tuple))
    number = len(more) + 1
    limits = st.lists(st.integers(0, 10**6), min_size=number, max_size=number).map(tuple)
    found = {
        "data.train": draw(_PATHS | _PATHS.map(lambda name: f"{name}.jsonl")),
        "data.more": more,
        "data.limits": draw(st.just(()) | limits.filter(any)) if is_text else (),
        "data.references": given,
        "data.evaluation": None if given else draw(st.none() | _PATHS),
        "data.format": draw(st.sampled_from(formats)) if is_text else None,
        "data.samples": draw(st.none() | st.integers(1, 10**7)),
        "data.sequence": 0 if paints else draw(st.integers(1, 2**17)),
        "data.packing": kind == "causal-lm" and draw(st.booleans()),
        "data.images": images,
        "data.image_width": side,
        "data.image_height": side,
        "data.image_tokens": tokens,
        "data.vision_tokens": 4 * tokens,
    }
    clips = paints and not given and found["data.evaluation"] is None
    found["data.frames"] = draw(st.sampled_from((0, 1, 9, 81))) if clips else 0
    is_chat = is_text and found["data.format"] in (None, "sharegpt")
    templates = st.sampled_from((None, "plain", "template.jinja"))
    tokens = st.sampled_from((None, "answers", "all"))
    is_open = is_text and found["data.format"] != "text"
    return {
        **found,
        "data.chat_template": draw(templates) if is_chat else None,
        "data.loss_on": draw(tokens) if is_open else None,
    }


@st.composite
def _precision(draw: st.DrawFn, values: Values) -> Values:
    compute = draw(st.sampled_from(("bf16", "fp16", "fp32")))
    half = compute == "fp16"
    on_deepspeed = values["parallel.engine"] == "deepspeed"
    scaling = {"initial_scale_power": 16, "loss_scale_window": 1000, "hysteresis": 2}
    scaling["min_loss_scale"] = 1
    if half and on_deepspeed:
        scaling = {name: draw(st.integers(1, 2000)) for name in scaling}
    return {
        "precision.compute": compute,
        "precision.loss_scaling": "dynamic" if half else "none",
        **{f"precision.{name}": value for name, value in scaling.items()},
        "precision.tf32": draw(st.booleans()),
        "precision.deprecated_fp16": half and on_deepspeed and draw(st.booleans()),
    }


@st.composite
def _adapter(draw: st.DrawFn, values: Values) -> Values:
    lora = draw(st.booleans())
    form = draw(st.sampled_from(("none", "nf4", "fp4", "int8"))) if lora else "none"
    packed = form in ("nf4", "fp4")
    found: Values = {
        "quantization.format": form,
        "quantization.double": packed and draw(st.booleans()),
        "quantization.compute": values["precision.compute"],
        "quantization.storage": None,
        "adapter.trainable_parameters": draw(st.integers(1, 10**11)),
    }
    if not lora:
        nothing = {"rank": 0, "alpha": 0.0, "dropout": 0.0, "targets": (), "bias": "none"}
        nothing["parameters"] = ()
        return {
            **found,
            "adapter.kind": "none",
            **{f"adapter.{name}": value for name, value in nothing.items()},
            **{f"adapter.{name}": False for name in ("rslora", "dora")},
            "adapter.merge": "never",
            "adapter.also_train": (),
            "adapter.frozen": (),
        }
    return {
        **found,
        "adapter.kind": "lora",
        "adapter.rank": draw(st.integers(1, 512)),
        "adapter.alpha": float(draw(st.integers(1, 1024))),
        "adapter.dropout": draw(st.floats(0, 1, allow_subnormal=False)),
        "adapter.targets": draw(_MODULES | st.just(_PATTERN) | st.just("all-linear")),
        "adapter.parameters": draw(st.sampled_from(((), (), _EXPERTS))),
        "adapter.bias": draw(st.sampled_from(("none", "none", "all", "lora_only"))),
        "adapter.rslora": draw(st.booleans()),
        "adapter.dora": draw(st.booleans()),
        "adapter.merge": draw(st.sampled_from(("never", "never", "device", "host"))),
        "adapter.also_train": draw(st.just(()) | _MODULES),
        "adapter.frozen": (),
    }


_WITHOUT_CRITIC: Values = {
    **dict.fromkeys((path for path in SLOTS if path.startswith("ppo.")), 0.0),
    "ppo.critic": "",
    "ppo.epochs": 0,
    "ppo.kl": "none",
}


@st.composite
def _objective(draw: st.DrawFn, values: Values) -> Values:
    nothing: Values = {"engine": "none", "samples": 0, "prompt": 0, "completion": 0}
    written = {**nothing, "temperature": 0.0, "device_share": 0.0}
    written |= {"engine_sleeps": False, "offload_training": False}
    found: Values = {"loss": "nll", "beta": 0.0, "reference": "none", "rewards": ()}
    own = "base" if values["adapter.kind"] == "lora" else "resident"
    sequence = values["data.sequence"]
    if values["objective.kind"] == "dpo":
        found["loss"] = draw(st.sampled_from(("sigmoid", "hinge", "ipo", "apo_zero")))
        found["beta"] = draw(_POSITIVE)
        found["reference"] = draw(st.sampled_from((own, "precomputed")))
    elif values["objective.kind"] == "reward":
        found["loss"] = "sigmoid"
    elif values["objective.kind"] == "grpo":
        found["loss"] = draw(st.sampled_from(("grpo", "bnpo", "dr_grpo", "dapo")))
        found["beta"] = draw(st.just(0.0) | _POSITIVE)
        found["reference"] = own if found["beta"] else "none"
        found["rewards"] = draw(st.lists(_NAMES, min_size=1, max_size=2).map(tuple))
        engine = draw(st.sampled_from(("transformers", *BESIDE_TRAINING, "vllm_server")))
        sleeps = engine in BESIDE_TRAINING and draw(st.booleans())
        prompt = draw(st.integers(0, sequence))
        written = {
            "engine": engine,
            "samples": draw(st.integers(2, 16)),
            "prompt": prompt,
            "completion": sequence - prompt,
            "temperature": draw(_POSITIVE),
            "device_share": 0.5 if engine in BESIDE_TRAINING else 0.0,
            "engine_sleeps": sleeps,
            "offload_training": sleeps and draw(st.booleans()),
        }
    return {
        **{f"objective.{name}": value for name, value in found.items()},
        **{f"generation.{name}": value for name, value in written.items()},
        **_WITHOUT_CRITIC,
        "loss.path": draw(st.sampled_from(("full", "fused", "chunked"))),
    }


@st.composite
def _evaluation(draw: st.DrawFn, predictions: tuple[str, ...], values: Values) -> Values:
    made = draw(st.sampled_from(predictions))
    found: Values = {"predictions": made, "prompt": 0, "completion": 0, "beams": 1}
    if made == "answers":
        found["prompt"] = draw(st.integers(0, values["data.sequence"]))
        found["completion"] = draw(st.integers(1, 4096))
        found["beams"] = draw(st.integers(1, 8))
    found["kept_batches"] = None if made == "loss" else draw(st.integers(1, 16))
    return {f"evaluation.{name}": value for name, value in found.items()}


@st.composite
def _zero(draw: st.DrawFn, values: Values) -> Values:
    quantised = values["quantization.format"] != "none"
    stage = 0
    if values["parallel.engine"] == "deepspeed":
        stage = draw(st.integers(0, 2 if quantised else 3))
    optimizer = draw(st.sampled_from(("none", "cpu", "nvme"))) if stage == 3 else "none"
    if stage in (1, 2):
        optimizer = draw(st.sampled_from(("none", "cpu")))
    param = draw(st.sampled_from(("none", "cpu", "nvme"))) if stage == 3 else "none"
    offloads = "none" not in (optimizer, param) or optimizer != param
    shares = stage in (1, 2)
    amounts = ("prefetch_bucket", "persistence_threshold", "max_live_parameters")
    amounts = (*amounts, "max_reuse_distance", "sub_group_size")
    found: Values = {
        "stage": stage,
        "offload_optimizer": optimizer,
        "offload_param": param,
        "nvme_path": f"/{draw(_NAMES)}" if "nvme" in (optimizer, param) else None,
        "pin_memory": offloads and draw(st.booleans()),
        "overlap_comm": stage > 0 and draw(st.booleans()),
        "contiguous_gradients": stage > 0 and draw(st.booleans()),
        "reduce_scatter": shares and draw(st.booleans()),
        "reduce_bucket": draw(_BUCKETS) if stage else 0,
        "allgather_bucket": draw(_BUCKETS) if shares else 0,
        **{name: draw(_BUCKETS) if stage == 3 else 0 for name in amounts},
        "gather_on_save": stage == 3 and draw(st.booleans()),
        "hpz_partition": draw(st.sampled_from((1, values["parallel.data"]))) if stage == 3 else 1,
        "leaf_modules": None,
    }
    return {f"zero.{name}": value for name, value in found.items()}


@st.composite
def _optimizer(draw: st.DrawFn, values: Values) -> Values:
    names = tuple(_KERNELS) if values["zero.offload_optimizer"] == "none" else ("adamw",)
    if values["zero.stage"] == 3:
        names = tuple(name for name in names if "8bit" not in name and "32bit" not in name)
    name = draw(st.sampled_from(names))
    found: Values = {
        "name": name,
        "kernel": draw(st.sampled_from(_KERNELS[name])),
        "learning_rate": draw(_POSITIVE),
        "beta1": draw(st.floats(0, 0.999, allow_subnormal=False)),
        "beta2": draw(st.floats(0, 0.999, allow_subnormal=False)),
        "epsilon": draw(_POSITIVE),
        "weight_decay": draw(st.floats(0, 1, allow_subnormal=False)),
        "max_grad_norm": draw(st.floats(0, 10, allow_subnormal=False)),
    }
    return {f"optimizer.{name}": value for name, value in found.items()}


@st.composite
def _states(draw: st.DrawFn, values: Values) -> Values:
    compute, engine = values["precision.compute"], values["parallel.engine"]
    moments = "int8" if "8bit" in values["optimizer.name"] else "fp32"
    if engine == "deepspeed":
        gradients = compute
        if values["zero.stage"]:
            gradients = draw(st.sampled_from((compute, "fp32")))
        held = (compute, compute, gradients, True, moments, False)
    elif draw(st.booleans()):
        packed = values["quantization.format"] in ("nf4", "fp4")
        weights = compute if packed else draw(st.sampled_from((compute, "fp32")))
        held = (weights, "fp32", "fp32", False, moments, compute != "fp32")
    else:  # everything in one dtype, without autocast; fp16 so would need a scaler for fp16
        if compute == "fp16":
            return draw(_states(values))
        held = (compute, compute, compute, False, moments, False)
    names = ("weights", "trainable", "gradients", "master_weights", "optimizer", "autocast")
    return {f"states.{name}": value for name, value in zip(names, held, strict=True)}


@st.composite
def _loop(draw: st.DrawFn, values: Values) -> Values:
    micro, accumulation = draw(st.integers(1, 64)), draw(st.integers(1, 64))
    recomputes = draw(st.booleans())
    steps = draw(st.none() | st.integers(1, 10**6))
    epochs = draw(st.floats(0.1, 100, allow_subnormal=False)) if steps is None else None
    if steps is not None:
        epochs = draw(st.none() | st.floats(0.1, 100, allow_subnormal=False))
    kind = draw(st.sampled_from(("constant", "constant_with_warmup", "linear", "cosine")))
    share = None if kind == "constant" else draw(st.none() | st.floats(0.001, 0.999))
    warmup = 0 if kind == "constant" else draw(st.integers(0, min(steps or 0, 1000)))
    if share is not None:
        warmup = None if steps is None else math.ceil(steps * share)
    return {
        "activation_checkpointing.mode": "layer" if recomputes else "none",
        "activation_checkpointing.reentrant": recomputes and draw(st.booleans()),
        "activation_checkpointing.segment": 1,
        "activation_checkpointing.gap": 0,
        "activation_checkpointing.offload": False,
        "batch.micro": micro,
        "batch.accumulation": accumulation,
        "batch.global": micro * accumulation * values["parallel.data"],
        "batch.evaluation": draw(st.integers(1, 64)),
        "schedule.arguments": (),
        "schedule.kind": kind,
        "schedule.epochs": epochs,
        "schedule.steps": steps,
        "schedule.estimated_steps": None if steps else draw(st.none() | st.integers(1, 10**6)),
        "schedule.warmup_share": share,
        "schedule.warmup_steps": warmup,
        "schedule.log_steps": draw(st.integers(1, 1000)),
        "schedule.save_steps": draw(st.none() | st.integers(1, 10**5)),
        "schedule.keep_checkpoints": draw(st.none() | st.integers(1, 10)),
        "schedule.evaluation_steps": (
            None if values["data.evaluation"] is None else draw(st.integers(1, 10**5))
        ),
        "runtime.seed": draw(st.integers(0, 2**31)),
        "runtime.output": draw(_PATHS),
        "runtime.dataloader_workers": draw(st.integers(0, 64)),
        "runtime.dataloader_pin_memory": draw(st.booleans()),
        "runtime.neftune_alpha": draw(st.none() | st.floats(0.5, 50)),
        "runtime.extra": (),
        "runtime.report_to": draw(
            st.lists(st.sampled_from(("tensorboard", "wandb", "mlflow")), unique=True).map(tuple)
        ),
    }


@st.composite
def _fsdp(draw: st.DrawFn, values: Values) -> Values:
    if values["parallel.engine"] != "fsdp":
        return {slot: value for slot, value in BASE.items() if slot.startswith("fsdp.")}
    version = draw(st.sampled_from((1, 2)))
    first = version == 1
    wrap = draw(st.sampled_from(("transformer", "size", "none")))
    classes = st.lists(st.sampled_from(("LlamaDecoderLayer", "T5Block")), unique=True).map(tuple)
    recomputes = values["activation_checkpointing.mode"] == "layer"
    reentrant = values["activation_checkpointing.reentrant"]
    shardings = ("full", "grad_op", *(("hybrid", "none") if first else ()))
    found: Values = {
        "version": version,
        "sharding": draw(st.sampled_from(shardings)),
        "offload_params": draw(st.booleans()),
        "wrap": wrap,
        "wrap_classes": draw(classes) if wrap == "transformer" else (),
        "min_parameters": draw(_BUCKETS) if wrap == "size" else 0,
        "backward_prefetch": draw(st.sampled_from(("none", "pre", "post"))) if first else "pre",
        "forward_prefetch": first and draw(st.booleans()),
        "use_orig_params": draw(st.booleans()) if first else True,
        "state_dict": draw(st.sampled_from(("full", "sharded"))),
        "efficient_loading": draw(st.booleans()),
        "checkpointing": recomputes and not reentrant and draw(st.booleans()),
    }
    return {f"fsdp.{name}": value for name, value in found.items()}


@st.composite
def _launch(draw: st.DrawFn, values: Values) -> Values:
    visible = values["devices.visible"]
    environment = []
    if visible:
        if values["devices.vendor"] == "nvidia":
            environment.append(("CUDA_DEVICE_ORDER", "PCI_BUS_ID"))
        environment.append((VISIBLE[values["devices.vendor"]], ",".join(visible)))
    if values["precision.deprecated_fp16"]:
        environment.append(("DS_ALLOW_DEPRECATED_FP16", "1"))
    if draw(st.booleans()):
        environment.append(("PYTORCH_CUDA_ALLOC_CONF", draw(st.text("ab:,'\" $\\#;", max_size=9))))
    several = ("torchrun", "deepspeed", "accelerate")
    alone = ("python", *several) if values["parallel.world"] == 1 else several
    scripts = ("train.py", "trl.scripts.sft --config sft.yaml", "'my train.py' --name 'it''s'")
    return {
        "launch.launcher": draw(st.sampled_from(alone)),
        "launch.environment": tuple(environment),
        "launch.script": draw(st.sampled_from(scripts)),
    }


@st.composite
def _job(draw: st.DrawFn) -> Values:
    label = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
    name = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
    lines = st.sampled_from(("module load cuda", ". env/bin/activate", "export A='$HOME b'"))
    found: Values = {
        "name": draw(name),
        "host_memory": draw(st.integers(1, 2**11)) * 2**30,
        "duration": draw(st.none() | st.integers(1, 10**4).map(lambda n: 60 * n)),
        "time_limit": draw(st.none() | st.integers(1, 2**24)),
        "torch": draw(st.sampled_from(("2.13.0+cu130", "2.13.0+cu126", "2.13.0+rocm7.2", None))),
        "packages": draw(st.lists(_NAMES, max_size=2).map(tuple)),
        "image": draw(st.none() | st.just("me/image:1")),
        "setup": draw(st.lists(lines, max_size=2).map(tuple)),
        **{key: draw(st.none() | name) for key in ("queue", "account", "qos")},
        **{key: draw(st.none() | label) for key in ("namespace", "volume")},
        "infra": draw(st.none() | st.just("aws/us-east-1")),
        "spot": draw(st.booleans()),
    }
    return {f"job.{key}": value for key, value in found.items()}
