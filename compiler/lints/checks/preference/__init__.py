"""Rules about preference methods: DPO and its kin, GRPO, reward models."""
