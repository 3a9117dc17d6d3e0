"""Choice of a cluster: one spec planned on many clusters, with hours, prices and energy."""
