#!/bin/bash
torchrun --nproc_per_node 8 --nnodes 1 --node_rank 0 --master_addr localhost --master_port 6001 finetune.py \
  --model_name_or_path openbmb/MiniCPM-V-2_6 --llm_type qwen \
  --data_path train.json --eval_data_path eval.json \
  --remove_unused_columns false --label_names "labels" --prediction_loss_only false \
  --bf16 false --bf16_full_eval false --fp16 true --fp16_full_eval true \
  --do_train --tune_vision true --tune_llm false --use_lora true \
  --lora_target_modules "llm\..*layers\.\d+\.self_attn\.(q_proj|k_proj|v_proj|o_proj)" \
  --model_max_length 2048 --max_slice_nums 9 --max_steps 10000 --eval_steps 1000 \
  --output_dir output/output_lora --num_train_epochs 2 \
  --per_device_train_batch_size 1 --per_device_eval_batch_size 1 --gradient_accumulation_steps 1 \
  --evaluation_strategy "steps" --save_strategy "steps" --save_steps 1000 --save_total_limit 10 \
  --learning_rate 1e-6 --weight_decay 0.1 --adam_beta2 0.95 --warmup_ratio 0.01 \
  --lr_scheduler_type "cosine" --logging_steps 1 --gradient_checkpointing true \
  --deepspeed ds_config_zero2.json --report_to "tensorboard"
