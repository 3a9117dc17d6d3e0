"""ms-swift's file: written, read and checked."""
