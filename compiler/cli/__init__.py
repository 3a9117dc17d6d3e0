"""The command line: parses arguments, prints results, decides nothing."""
