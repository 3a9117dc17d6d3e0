#!/bin/bash
CUDA_VISIBLE_DEVICES=0,1 python finetuning.py --use_peft --peft_method lora --quantization 8bit --use_fp16 \
  --model_name meta-llama/Llama-3.2-3B --output_dir out
