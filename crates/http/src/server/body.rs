//! Reading a request's body: bounded in size, in time, and over all connections together.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::ServerLimits;
use super::connections::Connection;
use super::reply::{Refusal, Why};
use super::room::{ForBody, Room};

/// A body, and its share of the room for bodies.
pub(super) struct Read {
    pub(super) bytes: Bytes,
    pub(super) room: Option<OwnedSemaphorePermit>,
}

/// Reads a body of at most `bytes_max` bytes. When it is there, the connection is at work.
pub(super) async fn read(
    body: Incoming,
    bytes_max: usize,
    limits: &ServerLimits,
    room: &Room,
    connection: &Arc<Connection>,
) -> Result<Read, Refusal> {
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(too_large(bytes_max));
    }
    let reading = collect(body, bytes_max, limits, room.for_body(connection));
    let Ok(read) = tokio::time::timeout(limits.body_timeout, reading).await else {
        return Err(Why::TimedOut.because("the body did not end in time"));
    };
    let read = read?;
    connection.begin().await;
    Ok(read)
}

async fn collect(
    mut body: Incoming,
    bytes_max: usize,
    limits: &ServerLimits,
    bodies: ForBody<'_>,
) -> Result<Read, Refusal> {
    let started = Instant::now();
    let (mut bytes, mut room) = (BytesMut::new(), None::<OwnedSemaphorePermit>);
    loop {
        let frame = tokio::time::timeout(limits.body_grace, body.frame()).await;
        let Ok(Some(frame)) = frame else {
            if frame.is_ok() {
                return Ok(Read { bytes: bytes.freeze(), room });
            }
            return Err(Why::TimedOut.because("the body stands still"));
        };
        let frame = frame.map_err(|_| Why::Malformed.because("the body broke off"))?;
        let Ok(data) = frame.into_data() else { continue }; // trailers mean nothing here
        if bytes.len() + data.len() > bytes_max {
            return Err(too_large(bytes_max));
        }
        if is_slow(started.elapsed(), bytes.len() + data.len(), limits) {
            return Err(Why::TimedOut.because("the body comes too slowly"));
        }
        let share = bodies.share(data.len()).await?;
        match &mut room {
            Some(room) => room.merge(share),
            None => room = Some(share),
        }
        bytes.extend_from_slice(&data);
    }
}

fn is_slow(elapsed: Duration, bytes: usize, limits: &ServerLimits) -> bool {
    elapsed > limits.body_grace && (bytes as u128) < limits.body_rate_min as u128 * elapsed.as_millis() / 1000
}

fn too_large(bytes_max: usize) -> Refusal {
    Why::TooLarge.because(format!("the body exceeds the limit of {bytes_max} bytes"))
}
