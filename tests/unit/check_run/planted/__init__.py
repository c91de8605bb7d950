"""Defects that the log of a right run gets, one at a time."""

from . import endings, groups, plane, stamps
from .defect import DEFECTS, Defect

__all__ = ["DEFECTS", "Defect", "endings", "groups", "plane", "stamps"]
