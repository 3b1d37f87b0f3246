//! How long a client waits, and what for.

use std::time::Duration;

use twobox_core::{Error, ErrorKind, Result};

/// How long the steps of a request may take, and how much of an answer is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Finding the address, connecting, and agreeing on TLS. Default 3 s: a host that answers at all does so in a
    /// fraction of it.
    pub connect_timeout: Duration,
    /// From the request to the head of the answer, if the relay's request time-out is not shorter. Default 10 s: the
    /// default of that one. A receiver that has not read the request a second later loses the connection, after ten
    /// minutes in any case.
    pub answer_timeout: Duration,
    /// From the head of the answer to its end. Default 5 s.
    pub body_timeout: Duration,
    /// How long an unused connection is kept. Default 30 s: half of what servers of ours do, so that a request never
    /// meets a connection that is being closed.
    pub idle_timeout: Duration,
    /// Unused connections that are kept per host. Default 8: more than a relay's requests in flight.
    pub idle_max: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            answer_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(30),
            idle_max: 8,
        }
    }
}

/// The longest an unused connection may be kept. Servers close theirs far sooner; and it is added to a point in time,
/// which must not overflow.
const IDLE_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

impl ClientLimits {
    /// Refuses limits under which no request could ever be answered (S10).
    ///
    /// # Errors
    /// [`Misconfigured`](ErrorKind::Misconfigured), naming the limit and the remedy.
    pub fn check(&self) -> Result<()> {
        let Self { connect_timeout, answer_timeout, body_timeout, idle_timeout, idle_max: _ } = self;
        let times = [
            ("connect_timeout", connect_timeout),
            ("answer_timeout", answer_timeout),
            ("body_timeout", body_timeout),
        ];
        let problem = if let Some((name, _)) = times.into_iter().find(|(_, time)| time.is_zero()) {
            format!("{name} is zero, so no request gets through: set it to at least 1 ms")
        } else if *idle_timeout > IDLE_TIMEOUT_MAX {
            "idle_timeout exceeds a day, and no server keeps an unused connection that long: lower it".into()
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
    fn s10_time_outs_that_let_nothing_through_are_refused() {
        ClientLimits::default().check().unwrap();
        let checked = |change: fn(&mut ClientLimits)| {
            let mut limits = ClientLimits::default();
            change(&mut limits);
            limits.check()
        };
        let refused = |change: fn(&mut ClientLimits)| {
            let error = checked(change).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misconfigured);
            error.to_string()
        };
        assert!(refused(|limits| limits.connect_timeout = Duration::ZERO).contains("connect_timeout"));
        assert!(refused(|limits| limits.answer_timeout = Duration::ZERO).contains("answer_timeout"));
        assert!(refused(|limits| limits.body_timeout = Duration::ZERO).contains("body_timeout"));
        assert!(refused(|limits| limits.idle_timeout = Duration::MAX).contains("idle_timeout"));
        checked(|limits| limits.idle_timeout = IDLE_TIMEOUT_MAX).unwrap();
        checked(|limits| limits.idle_timeout = Duration::ZERO).expect("no connection is used twice");
        checked(|limits| limits.answer_timeout = Duration::MAX).expect("whoever wants to may wait");
    }
}
