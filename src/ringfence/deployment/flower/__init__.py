"""Flower as a second engine, which shows that the seam is thin. Its sites run code that the submitter ships."""
