"""One self-contained page about a plan or a fleet: charts, tables, reasons."""
