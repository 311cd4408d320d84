"""Trained models: prediction, export, cards, coefficient summaries and privacy statements."""

from ringfence.model.model import Model

__all__ = ["Model"]
