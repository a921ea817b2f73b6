//! The counters of the gateway. Only its thread writes them; others may read at any time.

crate::counts::counts! {
    /// All counters of the gateway. Names and meanings: see [`GatewayCounts::figures`].
    GatewayCounts:
    Gauge "tcp_open" "Connections of clients that are open" { open, }
    Counter "tcp_accepted" "Connections of clients that were accepted" { accepted, }
    Counter "tcp_refused" "Client connections refused, by reason" {
        refused_access = "reason": "access",
        refused_proxy = "reason": "proxy",
        refused_client = "reason": "client",
        refused_full = "reason": "full",
        refused_system = "reason": "system",
    }
    Counter "tcp_closed" "Connections of clients that were closed, by reason" {
        closed_client = "reason": "client",
        closed_idle = "reason": "idle",
        closed_unread = "reason": "unread",
        closed_unanswered = "reason": "unanswered",
        closed_format = "reason": "format",
        closed_tls = "reason": "tls",
        closed_full = "reason": "full",
        closed_drain = "reason": "drain",
    }
    Counter "tcp_held" "Times that a query waited for room in the mailbox of a worker" { held, }
    Counter "tcp_answers_unsent" "Responses not sent because the connection was closed" { answers_unsent, }
    Counter "upstream_connections" "Connections to upstreams, by event" {
        upstream_opened = "event": "opened",
        upstream_wrong_id = "event": "wrong-id",
        upstream_tls_failed = "event": "tls-failed",
    }
    Counter "upstream_exchanges" "Questions asked over connections, by outcome" {
        upstream_answered = "outcome": "answered",
        upstream_failed = "outcome": "failed",
        upstream_full = "outcome": "full",
    }
    Counter "upstream_reused" "Questions sent over a connection that was already open" { upstream_reused, }
    Counter "upstream_retried" "Questions asked again because their connection was closed" { upstream_retried, }
    Counter "upstream_undelivered" "Answers lost because a worker's mailbox was full" { upstream_undelivered, }
    + /// Turns of its thread: at least one a second.
    pub turns: crate::counts::Counter,
}
