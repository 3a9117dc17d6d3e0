"""tunec: the compiler for fine-tuning configs."""

__version__ = "0.1.0"
