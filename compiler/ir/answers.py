"""Slots of answers that are written and rewarded during training, and of PPO's critic."""

from typing import Annotated

from msgspec import Struct

from tunec.schemas.terms import Generator, KlPlace


class Generation(Struct, frozen=True):
    """Answers that the model writes during training; used for grpo and ppo."""

    engine: Annotated[
        Generator, "none, transformers, vllm_colocate, sglang_colocate or vllm_server"
    ]
    samples: Annotated[int, "answers to one prompt; 0: none are written", "samples"]
    prompt: Annotated[int, "most tokens of a prompt", "tokens"]
    completion: Annotated[int, "most tokens of an answer", "tokens"]
    temperature: Annotated[float, "of sampling; 0: nothing is sampled"]
    device_share: Annotated[
        float, "share of each device's memory that vLLM or SGLang takes beside the training"
    ]
    engine_sleeps: Annotated[bool, "whether that share is free again while the model is trained"]
    offload_training: Annotated[
        bool, "whether weights and optimizer states wait on the host while answers are written"
    ]


class Ppo(Struct, frozen=True):
    """What PPO adds to rewarded answers: its critic, and how far one update goes."""

    critic: Annotated[str, "argument of `from_pretrained` for the critic; empty: there is none"]
    critic_learning_rate: Annotated[float, "the critic's learning rate; 0: there is none"]
    gamma: Annotated[float, "discount of later rewards; 0: no values are used"]
    lam: Annotated[float, "lambda of the advantages (arXiv 1506.02438)"]
    epochs: Annotated[int, "times that both models are trained on the same answers"]
    clip: Annotated[float, "how far the ratio of probabilities may leave 1; 0: without effect"]
    value_clip: Annotated[float, "how far a value may leave the former one; 0: without effect"]
    kl: Annotated[KlPlace, "where the distance from the reference counts: none, reward or loss"]
