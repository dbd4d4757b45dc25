"""The charts of runs, comparisons and suites: `pictures` lists those that the server draws, `figures` has Plotly's."""
