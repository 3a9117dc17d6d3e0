"""TRL: the YAML of `trl sft`, `trl dpo` and `trl grpo`."""
