//! What single steps cost on a machine that is mostly asleep: a sync, and a round trip on the loopback.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use super::order::micros;
use crate::Result;
use crate::lab::Lab;
use crate::stats::median;

/// One step per so much time.
pub(crate) const EVERY: Duration = Duration::from_millis(10);
const BYTES: usize = 256;

/// Medians of a sample, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cold {
    pub(crate) sync: f64,
    pub(crate) echo: f64,
}

impl Cold {
    /// What a message that is handled one hop away must cost: a hop, and a sync there.
    pub(crate) fn floor(&self) -> f64 {
        self.sync + self.echo / 2.0
    }
}

/// Samples the disk for `duration`, then the loopback for as long.
pub(crate) fn sample(lab: &mut Lab, echo: &mut Echo, duration: Duration) -> Result<Cold> {
    lab.rest()?;
    let sync = steps(duration, || lab.raw.write())?;
    Ok(Cold { sync, echo: steps(duration, || echo.ping())? })
}

/// The median of what `step` takes, in microseconds.
fn steps(duration: Duration, mut step: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut taken = Vec::new();
    for _ in 0..duration.as_millis() / EVERY.as_millis() {
        std::thread::sleep(EVERY);
        let start = micros();
        step()?;
        taken.push((micros() - start) as f64);
    }
    Ok(median(&taken))
}

/// A connection to a thread that sends back what it gets. The thread ends with the connection.
#[derive(Debug)]
pub(crate) struct Echo(TcpStream);

impl Echo {
    pub(crate) fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        stream.set_nodelay(true)?;
        let (far, _) = listener.accept()?;
        far.set_nodelay(true)?;
        std::thread::spawn(move || answer(far));
        Ok(Self(stream))
    }

    fn ping(&mut self) -> Result<()> {
        let mut bytes = [7; BYTES];
        self.0.write_all(&bytes)?;
        Ok(self.0.read_exact(&mut bytes)?)
    }
}

fn answer(mut stream: TcpStream) {
    let mut bytes = [0; BYTES];
    while stream.read_exact(&mut bytes).is_ok() && stream.write_all(&bytes).is_ok() {}
}
