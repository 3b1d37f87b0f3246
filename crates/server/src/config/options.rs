//! From settings to the options of the parts that they are for.

use std::num::NonZeroU32;
use std::time::Duration;

use twobox::wire::Limits;
use twobox::{ClientLimits, Policy, RelayOptions, ServerLimits, SweepPlan, Timing, WorkerOptions};

use super::keys::Config;

impl Config {
    pub(crate) fn relay_options(&self) -> RelayOptions {
        let outbox = &self.outbox;
        RelayOptions {
            timing: Timing {
                ttl: outbox.ttl,
                retry: policy(outbox.retries_max, outbox.retry_base, outbox.retry_max, outbox.retry_jitter),
                dedup_window: self.inbox.dedup_window,
                request_timeout: outbox.request_timeout,
                lease: outbox.lease,
            },
            head_policy: outbox.head_policy,
            batch_messages_max: outbox.batch_messages_max,
            batch_bytes_max: outbox.batch_bytes_max.0,
            in_flight_max: outbox.in_flight_max,
            probe: RelayOptions::default().probe.base(outbox.probe_base).max(outbox.probe_max),
            route_grace: outbox.route_grace,
            shutdown_timeout: self.part_stop_timeout(),
            ..RelayOptions::default()
        }
    }

    /// How a transport waits for a receiver.
    pub(crate) fn client_limits(&self) -> ClientLimits {
        ClientLimits {
            connect_timeout: self.outbox.connect_timeout,
            answer_timeout: self.outbox.request_timeout,
            ..ClientLimits::default()
        }
    }

    pub(crate) fn server_limits(&self) -> ServerLimits {
        let receive = &self.receive;
        ServerLimits {
            wire: Limits::for_payloads(receive.payload_max.0),
            connections_max: receive.connections_max,
            peer_connections_max: receive.peer_connections_max,
            requests_max: receive.requests_max,
            bodies_bytes_max: receive.bodies_bytes_max.0,
            head_timeout: receive.head_timeout,
            body_timeout: receive.body_timeout,
            idle_timeout: receive.idle_timeout,
            budget: receive.budget,
            shutdown_timeout: self.part_stop_timeout(),
            ..ServerLimits::default()
        }
    }

    /// How the user's program is waited for.
    pub(crate) fn handler_limits(&self) -> ClientLimits {
        ClientLimits {
            connect_timeout: self.handler.connect_timeout,
            answer_timeout: self.handler.timeout,
            body_timeout: self.handler.timeout,
            idle_max: self.handler.concurrency,
            ..ClientLimits::default()
        }
    }

    pub(crate) fn handler_retry(&self) -> Policy {
        let handler = &self.handler;
        policy(handler.retries_max, handler.retry_base, handler.retry_max, handler.retry_jitter)
    }

    pub(crate) fn worker_options(&self) -> WorkerOptions {
        let default = WorkerOptions::default();
        WorkerOptions {
            lease: self.handler.lease,
            // What a process that was killed had in hand is handed over again soon after its lease is over.
            reap_interval: default.reap_interval.min(self.handler.lease),
            concurrency: self.handler.concurrency,
            handler_timeout: self.call_timeout(),
            shutdown_timeout: self.part_stop_timeout(),
            ..default
        }
    }

    /// A call as a whole: connecting, and an answer that may begin late, but not end later for it.
    fn call_timeout(&self) -> Duration {
        self.handler.timeout.saturating_add(self.handler.connect_timeout)
    }

    pub(crate) fn sweep_plan(&self) -> SweepPlan {
        SweepPlan {
            sent_retention: self.outbox.sent_retention,
            dedup_window: self.inbox.dedup_window,
            once_retention: self.outbox.once_retention,
            ..SweepPlan::default()
        }
    }

    /// Each part gets half of the time: the other half is for closing the database.
    pub(crate) fn part_stop_timeout(&self) -> Duration {
        self.node.stop_timeout / 2
    }
}

fn policy(retries_max: u32, base: Duration, max: Duration, jitter: Duration) -> Policy {
    let attempts = NonZeroU32::MIN.saturating_add(retries_max);
    Policy::default().attempts_max(attempts).base(base).max(max).jitter(jitter)
}
