"""What trainers that are scripts of a repository share: command lines, pinned sources, facts."""
