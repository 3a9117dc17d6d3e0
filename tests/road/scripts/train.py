"""A user's own script: the Trainer, as the three files of the huggingface target say.

`train.py TRAINING_ARGS MODEL_ARGS ADAPTER_CONFIG|- SAMPLES`
"""

import sys
from pathlib import Path

import yaml
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)


def main(training: str, model: str, adapter: str, samples: str) -> None:
    """Train, and save in the output directory."""
    (arguments,) = HfArgumentParser(TrainingArguments).parse_yaml_file(training)
    named = yaml.safe_load(Path(model).read_text("utf-8"))
    network = AutoModelForCausalLM.from_pretrained(
        named["model_name_or_path"], dtype=named["dtype"]
    )
    if adapter != "-":
        folder = adapter.rpartition("/")[0]
        network = get_peft_model(network, LoraConfig.from_pretrained(folder))
    tokenizer = AutoTokenizer.from_pretrained(named["model_name_or_path"])
    texts = load_dataset("json", data_files=samples, split="train")
    trainer = Trainer(
        model=network,
        args=arguments,
        train_dataset=texts.map(lambda row: tokenizer(row["text"]), remove_columns=["text"]),
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    # DeepSpeed's launcher puts --local_rank before the words of a script
    main(*(word for word in sys.argv[1:] if not word.startswith("--local_rank")))
