"""Forms of files that show what a run took: a reader for each, and the table of them."""
