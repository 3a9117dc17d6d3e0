"""Rules about models that see: their tower, their image tokens, their processors."""
