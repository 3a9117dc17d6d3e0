"""The content of a checkpoint's folder, and how training continues from it on other hardware."""
