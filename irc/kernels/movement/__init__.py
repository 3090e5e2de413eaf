"""Copies that rearrange."""
