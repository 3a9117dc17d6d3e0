"""The plan and how it came about: slots, definitions, the ledger."""
