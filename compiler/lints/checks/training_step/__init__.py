"""Rules about what one step takes and computes: batches, loaders, attention, recomputation."""
