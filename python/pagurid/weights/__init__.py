"""Loading: from files on disk to filled parameters."""

from pagurid.weights.load import LoadedModel, load_model

__all__ = ["LoadedModel", "load_model"]
