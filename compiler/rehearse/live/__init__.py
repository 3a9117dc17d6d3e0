"""Code that runs inside the ranks of a rehearsal: the only part that imports torch and others."""
