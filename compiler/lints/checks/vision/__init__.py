"""Rules about vision-language models: their tower, their image tokens, their processors."""
