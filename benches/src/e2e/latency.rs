//! When things happened to numbered messages, passed between processes in files.

use std::collections::HashMap;
use std::path::Path;

use crate::Result;
use crate::stats::percentile;
use crate::store::check;

/// Numbers and microseconds.
pub(crate) type Times = Vec<(u64, u64)>;

/// Writes them where the benchmark finds them.
pub(crate) fn write(path: &Path, times: &Times) -> Result<()> {
    let words = times.iter().flat_map(|(number, micros)| [*number, *micros]);
    Ok(std::fs::write(path, words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>())?)
}

fn read(path: &Path) -> Result<Times> {
    let bytes = std::fs::read(path)?;
    let words: Vec<u64> = bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
    Ok(words.as_chunks().0.iter().map(|[number, micros]| (*number, *micros)).collect())
}

/// How long messages took, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) longest: f64,
}

/// From the end of the sender's commit to the end of the receiver's, for each message that was committed.
pub(crate) fn between(committed: &Path, handled: &Path) -> Result<Latency> {
    let (committed, handled) = (read(committed)?, read(handled)?);
    let handled: HashMap<u64, u64> = handled.into_iter().collect();
    // A message may be handled before its caller has got to look at the clock.
    let took = |(number, at): &(u64, u64)| Some(handled.get(number)?.saturating_sub(*at) as f64);
    let micros: Vec<f64> = committed.iter().filter_map(took).collect();
    check("messages timed on both sides", committed.len() as u64, micros.len() as u64)?;
    let [p50, p99, longest] = [50, 99, 100].map(|percent| percentile(&micros, percent));
    Ok(Latency { p50, p99, longest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_matched_by_number() {
        let folder = tempfile::tempdir().unwrap();
        let (committed, handled) = (folder.path().join("c"), folder.path().join("h"));
        write(&committed, &vec![(1, 100), (2, 200), (3, 300)]).unwrap();
        write(&handled, &vec![(3, 350), (1, 110), (2, 190)]).unwrap();
        let latency = between(&committed, &handled).unwrap();
        assert_eq!((latency.p50, latency.p99, latency.longest), (10.0, 50.0, 50.0));
        write(&handled, &vec![(3, 350)]).unwrap();
        assert!(between(&committed, &handled).is_err());
    }
}
