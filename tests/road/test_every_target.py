"""No target without a run on the road, or a reason why it has none."""

from tests.road.runs import RUNS

from tunec.targets.registry import TARGETS

TRAVELLED_ELSEWHERE = {
    "launch": "it starts every run of the road",
    "deepspeed": "its file is for a script of the user's; runs under ZeRO start its engine",
    "accelerate": "its file starts the runs under FSDP, where launch writes it",
    "axolotl": "it imports triton, numba and wandb, hundreds of MB; 0.19.0 trained four steps of a "
    "tiny Llama on a CPU by an emitted file, with bf16 and tf32 off; 0.16.1 wrote and rewarded "
    "answers for the four planned steps of `rl: grpo`; two ranks of 0.19.0 trained a reward model "
    "for its seven, with the device map that it makes for GPUs set to the CPU; over bases in 4 and "
    "8 bits it trained texts, pairs, answers and a reward model as planned, two ranks under FSDP 2 "
    "too, and went on from a checkpoint as the whole run did",
    "llamafactory": "it imports torchaudio, which loads nothing without CUDA's libraries; with an "
    "empty one 0.9.5 trained two ranks of a tiny Llama for the five planned steps on a CPU, bases "
    "in 4 and 8 bits, packed samples, and a tiny Qwen2-VL on images, in full and in part; FSDP 1 "
    "ends in a fault of torch on a CPU",
    "ms-swift": "its trainers import what its parser does, and modelscope, scipy and nltk besides; "
    "4.6.0 trained two ranks of a tiny Llama for the planned steps on a CPU by emitted bundles, "
    "of messages, of pairs, of pairs for a reward model, under ZeRO 3 and under FSDP 2, over bases "
    "in 4 and 8 bits, and of answers that the model itself wrote, under DDP and under ZeRO 2",
    "nemo-automodel": "it asks torch for a CUDA device before it loads a model, and what it "
    "installs takes GBs; with the device answered for, 0.5.0 to 0.7.0 trained one and two ranks of "
    "tiny models for the planned steps on a CPU by 18 emitted bundles: rates, dtypes, adapters, "
    "evaluations and checkpoints were those of the plans",
    "unsloth": "what its command imports takes GBs, and its way for a CPU knows neither one "
    "argument of the command's to its loader nor `max_seq_length`; with both taken, 2026.10.9 "
    "trained adapters, adapters over 4 bits and a model in full for the planned steps by emitted "
    "bundles",
    "verl": "it imports ray, and its platform is CUDA's where none is found; with that answered "
    "for and ray beside it, 0.9.0 and 0.9.1 trained one and two ranks of tiny models under FSDP 1 "
    "and 2 on a CPU by emitted bundles for SFT; a bundle of PPO took main_ppo of 0.9.1 through its "
    "critic and its actor to vLLM, with sdpa for flash attention, and its engine of a critic gave "
    "values and updated two ranks under FSDP 2; answers for rewards need vLLM; tests/verify runs "
    "its trainers until a model is loaded",
    "openrlhf": "its models import FlashAttention, which has no wheel without CUDA; with that and "
    "DeepSpeed's FusedAdam stood in for, 0.11.2 trained two ranks of a tiny Llama for the eight "
    "planned steps on a CPU by emitted bundles, of texts and of pairs, and one rank over 4 bits",
    "slurm": "tests/clusters submits its jobs to a real controller, with another program to start",
    "kubeflow": "tests/clusters runs the lines of its jobs as pods; no cluster runs here",
    "skypilot": "it rents machines; its own parser reads the task (tests/consumers)",
    "glm4": "its script is in no package, and the model is code of its own repository",
    "minicpm-v": "its script is in no package, and the model is code of its own repository",
    "visualglm": "its script is in no package, and SwissArmyTransformer asks for CUDA",
}
"""Targets without a run of their own, each with the reason."""


def test_every_target_is_travelled_or_says_why_not():
    travelled = {name.partition("@")[0] for run in RUNS for name in run.spec["targets"]}
    assert travelled | TRAVELLED_ELSEWHERE.keys() == set(TARGETS.names())
    assert not travelled & TRAVELLED_ELSEWHERE.keys()


def test_the_runs_are_many():
    assert len(RUNS) >= 30
    assert len({run.name for run in RUNS}) == len(RUNS)
