"""Flower as a second engine, which shows how little an engine must do. Its sites run code that the submitter ships."""
