"""Logs, metrics and traces of the service.

`metric_definitions` declares every metric. `metrics` counts events and writes Prometheus's format;
it uses `histogram`, and `usage` for answered requests by vocabulary and key. `metrics_server`
serves the metrics on a separate port; `process_metrics` joins the metrics of several processes.
`request_observer` records each answered request once: in the metrics, as a span (`tracing`) and as
a line of the access log. `closed_connections` counts and logs connections that the service closes.
`logging` formats log lines.

All code that answers requests or runs batches calls this package, which does not call it back.

No text of a request appears in a log line, a label or a span.
"""
