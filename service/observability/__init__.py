"""Logs, metrics and traces of the service.

`metric_definitions` declares every metric; `metrics` counts them and writes Prometheus's format,
with `usage` for answered requests by vocabulary and key, and `histogram`; `metrics_server` answers
on a port of its own; `process_metrics` adds up the metrics of several processes. `request_observer`
notes each answered request once: metrics, a span (`tracing`), a line of the access log.
`closed_connections` counts and logs connections that the service closes. `logging` formats log
lines.

Called by everything that answers requests or runs batches; it calls none of them.

No text of a request appears in a log line, a label or a span.
"""
