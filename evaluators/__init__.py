"""One output in, scores and a verdict out; knows nothing of runs."""
