"""Columns that the migrations share."""

from typing import Any

import sqlalchemy as sa

__all__ = ["owner"]


def owner(name: str, key: str, **options: Any) -> "sa.Column[int]":
    """A foreign key to the owner of a row, which is deleted with it."""
    options = {"nullable": False, **options}
    return sa.Column(name, sa.Integer(), sa.ForeignKey(key, ondelete="CASCADE"), **options)
