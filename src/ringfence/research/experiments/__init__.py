"""Experiments that anybody can run again: one file each."""
