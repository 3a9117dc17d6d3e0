"""Kubeflow: manifests that start a run as a TrainJob or as a PyTorchJob."""
