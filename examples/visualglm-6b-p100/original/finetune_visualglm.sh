#!/bin/bash
deepspeed --num_gpus=1 finetune_visualglm.py \
  --experiment-name finetune-visualglm-6b --mode finetune --train-iters 300 \
  --max_source_length 64 --max_target_length 256 \
  --lora_rank 10 --layer_range 0 14 --pre_seq_len 4 --use_lora \
  --train-data ./fewshot-data/dataset.json --valid-data ./fewshot-data/dataset.json \
  --distributed-backend nccl --lr-decay-style cosine --warmup .02 --checkpoint-activations \
  --save-interval 300 --eval-interval 10000 --save ./checkpoints --split 1 \
  --eval-iters 10 --eval-batch-size 8 --zero-stage 1 --lr 0.0001 --batch-size 4 \
  --skip-init --fp16
