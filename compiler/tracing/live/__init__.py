"""The part of tracing that runs torch; imported only when a trace is requested."""
