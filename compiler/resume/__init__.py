"""What a checkpoint's folder holds, and how training goes on from it on other machines."""
