"""Trained models: prediction, export, cards, coefficient summaries and privacy statements."""
