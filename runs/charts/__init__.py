"""The charts of a suite. Pure: values in, plotly figures out, each twice: wide and narrow.

A figure is plain JSON in plotly's own shape. Its colours are names of CSS variables, which the page
replaces by those of the theme in force; plotly's own Python package is not loaded to draw it.
"""

from __future__ import annotations

from runs.charts._drawing import Figure
from runs.charts._front import Offer, dominators, front
from runs.charts._score_cost import score_cost_figure
from runs.charts._trend import TrendPoint, trend_figure

__all__ = [
    "Figure",
    "Offer",
    "TrendPoint",
    "dominators",
    "front",
    "score_cost_figure",
    "trend_figure",
]
