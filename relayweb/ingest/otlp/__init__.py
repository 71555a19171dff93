"""OpenTelemetry traces as ATOF events: OpenTelemetry GenAI, OpenInference, and what Relay's own exporters write."""
