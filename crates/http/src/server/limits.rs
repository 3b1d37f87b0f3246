//! What a server accepts from outside (S16).

use std::ops::RangeInclusive;
use std::time::Duration;

use twobox_core::wire::Limits;
use twobox_core::{Error, ErrorKind, Result};

/// Limits of a server. Everything is limited before it is parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Sizes and depths of envelopes and batches.
    pub wire: Limits,
    /// Connections at a time. Default 512: half of the files a process may usually have open. When there are as many, a
    /// newcomer takes the place of the one that has been silent for longest, those first that have never sent anything
    /// good, of whom a body that is still to come counts as silence; if all are at work, it is turned away.
    pub connections_max: usize,
    /// Connections at a time from one address (IPv6: one /64 network). Default 128.
    pub peer_connections_max: usize,
    /// From the first byte of a request, or from the start of a connection, to the end of the request's head, TLS
    /// included. Default 10 s.
    pub head_timeout: Duration,
    /// Headers of a request, at most 4096. Default 64; senders of ours use fewer than fifteen.
    pub headers_max: usize,
    /// Bytes of a request's head. Default 32 KiB.
    pub head_bytes_max: usize,
    /// From the end of a request's head to the end of its body. Default 30 s.
    pub body_timeout: Duration,
    /// How long a body may stand still, and how long it gets before its rate is looked at. Default 5 s.
    pub body_grace: Duration,
    /// Bytes per second below which a body is given up after `body_grace`. Default 1 KiB.
    pub body_rate_min: usize,
    /// Bytes of bodies that are kept at a time, over all connections. Default 64 MiB. Half of it is for connections
    /// that have sent something good before, so that strangers cannot take it all; strangers make room for each other.
    pub bodies_bytes_max: usize,
    /// Requests that are handled at a time. Default 64. The rest waits its turn, up to a second.
    pub requests_max: usize,
    /// How long the receiver may work on a request before it answers what it has. Default 5 s: half of a relay's
    /// request time-out. A sender that waits for less gets half of what it waits. A request that has had its turn is
    /// answered after twice this and two seconds at the latest; what its handlers do goes on.
    pub budget: Duration,
    /// From the answer to its last byte. Default 30 s.
    pub answer_timeout: Duration,
    /// How long a connection may be silent between two requests. Default 60 s.
    pub idle_timeout: Duration,
    /// How long stopping may take before connections are cut. Default 5 s (S20).
    pub shutdown_timeout: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            wire: Limits::default(),
            connections_max: 512,
            peer_connections_max: 128,
            head_timeout: Duration::from_secs(10),
            headers_max: 64,
            head_bytes_max: 32 << 10,
            body_timeout: Duration::from_secs(30),
            body_grace: Duration::from_secs(5),
            body_rate_min: 1024,
            bodies_bytes_max: 64 << 20,
            requests_max: 64,
            budget: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
            shutdown_timeout: Duration::from_secs(5),
        }
    }
}

/// The least a head may be limited to: below it no request of ours gets through.
const HEAD_BYTES_MIN: usize = 8 << 10;
/// How many headers a head may be limited to. Room for as many is set aside for every request, so the limit is limited.
const HEADERS: RangeInclusive<usize> = 16..=4096;

impl ServerLimits {
    fn times(&self) -> [Duration; 6] {
        let Self { head_timeout, body_timeout, body_grace, budget, answer_timeout, idle_timeout, .. } = self;
        [*head_timeout, *body_timeout, *body_grace, *budget, *answer_timeout, *idle_timeout]
    }

    /// Refuses limits under which nothing could ever be received (S10).
    ///
    /// # Errors
    /// [`Misconfigured`](ErrorKind::Misconfigured), naming the limits and the remedy.
    pub fn check(&self) -> Result<()> {
        let problem = if self.connections_max == 0 || self.peer_connections_max == 0 || self.requests_max == 0
        {
            "connections_max, peer_connections_max and requests_max must be at least 1"
        } else if self.bodies_bytes_max / 2 < self.wire.batch_bytes.max(self.wire.envelope_bytes) {
            "half of bodies_bytes_max must have room for one batch: raise it, or lower the payload limit"
        } else if self.times().contains(&Duration::ZERO) {
            "time-outs and budget must not be zero, or no request gets through"
        } else if self.head_bytes_max < HEAD_BYTES_MIN || !HEADERS.contains(&self.headers_max) {
            "head_bytes_max must be at least 8 KiB and headers_max from 16 to 4096, or no request gets through"
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Misconfigured, problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s10_limits_that_let_nothing_through_are_refused() {
        ServerLimits::default().check().unwrap();
        let refused = |change: fn(&mut ServerLimits)| {
            let mut limits = ServerLimits::default();
            change(&mut limits);
            limits.check().unwrap_err().to_string()
        };
        assert!(refused(|limits| limits.requests_max = 0).contains("requests_max"));
        assert!(refused(|limits| limits.bodies_bytes_max = 1).contains("bodies_bytes_max"));
        assert!(refused(|limits| limits.head_bytes_max = 100).contains("head_bytes_max"));
        assert!(refused(|limits| limits.headers_max = usize::MAX).contains("headers_max"));
        assert!(refused(|limits| limits.budget = Duration::ZERO).contains("budget"));
    }
}
