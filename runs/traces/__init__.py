"""Traces that agents send by OpenTelemetry: outputs of a run, or the inbox that cases are made from."""
