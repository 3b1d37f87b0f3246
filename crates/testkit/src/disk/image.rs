//! What is on the disk after a cut.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use twobox_core::Random;

use super::record::{Name, Op, Record};

/// What disks write at once.
const SECTOR: usize = 512;

/// What a cut leaves of writes that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// All of them: the process was killed, the machine lives.
    Kill,
    /// None of them.
    Lost,
    /// Some of them.
    Subset,
    /// Some sectors of some of them.
    Torn,
}

impl Cut {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Kill, Self::Lost, Self::Subset, Self::Torn];
}

/// The files of a disk at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Image {
    files: BTreeMap<Name, Vec<u8>>,
}

impl Record {
    /// What a cut before `step` leaves. `random` decides about what was not synced.
    #[must_use]
    pub fn image(&self, step: usize, cut: Cut, random: &dyn Random) -> Image {
        let mut files: BTreeMap<&Name, File<'_>> =
            self.base.iter().map(|(name, bytes)| (name, File::durable(bytes.clone()))).collect();
        for op in &self.ops[..step.min(self.ops.len())] {
            match op {
                Op::Mark(_) => {}
                Op::Sync { file } => files.entry(file).or_default().sync(),
                // The directory is as good as synced: SQLite does so where it matters, and losing a whole file that
                // was synced is another fault than losing a write.
                Op::Delete { file } => drop(files.remove(file)),
                Op::Write { file, .. } | Op::Truncate { file, .. } => {
                    files.entry(file).or_default().pending.push(op);
                }
            }
        }
        let survived = |(name, file): (&Name, File<'_>)| (name.clone(), file.after(cut, random));
        Image { files: files.into_iter().map(survived).collect() }
    }
}

/// A file and what was done to it since its last sync.
#[derive(Default)]
struct File<'a> {
    durable: Vec<u8>,
    pending: Vec<&'a Op>,
}

impl File<'_> {
    fn durable(durable: Vec<u8>) -> Self {
        Self { durable, pending: Vec::new() }
    }

    fn sync(&mut self) {
        for op in std::mem::take(&mut self.pending) {
            apply(&mut self.durable, op, &mut |_| true);
        }
    }

    fn after(mut self, cut: Cut, random: &dyn Random) -> Vec<u8> {
        let coin = |_: usize| random.next_u64().is_multiple_of(2);
        for op in std::mem::take(&mut self.pending) {
            match cut {
                Cut::Kill => apply(&mut self.durable, op, &mut |_| true),
                Cut::Subset if coin(0) => apply(&mut self.durable, op, &mut |_| true),
                Cut::Torn => apply(&mut self.durable, op, &mut { coin }),
                Cut::Lost | Cut::Subset => {}
            }
        }
        self.durable
    }
}

/// Does what was done, sector by sector, as far as `survives` says.
fn apply(bytes: &mut Vec<u8>, op: &Op, survives: &mut dyn FnMut(usize) -> bool) {
    match op {
        Op::Write { offset, data, .. } => {
            let start = usize::try_from(*offset).unwrap_or(usize::MAX);
            for (number, chunk) in sectors(start, data) {
                if survives(number) {
                    let end = chunk.0 + chunk.1.len();
                    if bytes.len() < end {
                        bytes.resize(end, 0);
                    }
                    bytes[chunk.0..end].copy_from_slice(chunk.1);
                }
            }
        }
        Op::Truncate { length, .. } if survives(0) => {
            bytes.truncate(usize::try_from(*length).unwrap_or(usize::MAX));
        }
        _ => {}
    }
}

/// The parts of a write that lie in different sectors, with their numbers and places.
fn sectors(start: usize, data: &[u8]) -> impl Iterator<Item = (usize, (usize, &[u8]))> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= data.len() {
            return None;
        }
        let place = start + at;
        let end = (at + SECTOR - place % SECTOR).min(data.len());
        let part = (place / SECTOR, (place, &data[at..end]));
        at = end;
        Some(part)
    })
}

impl Image {
    /// The same files have the same fingerprint.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// The files, by the path they had.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SeededRandom;

    fn write(offset: u64, data: &[u8]) -> Op {
        Op::Write { file: "a".into(), offset, data: data.to_vec() }
    }

    fn bytes(record: &Record, step: usize, cut: Cut) -> Vec<u8> {
        record.image(step, cut, &SeededRandom::new(1)).files.remove("a").unwrap_or_default()
    }

    #[test]
    fn only_what_was_synced_survives_a_power_cut_and_everything_survives_a_kill() {
        let ops = vec![write(0, b"one"), Op::Sync { file: "a".into() }, write(1, b"NEW"), write(9, b"!")];
        let record = Record { ops, ..Record::default() };
        assert_eq!(bytes(&record, 1, Cut::Lost), b"");
        assert_eq!(bytes(&record, 2, Cut::Lost), b"one");
        assert_eq!(bytes(&record, 4, Cut::Lost), b"one");
        assert_eq!(bytes(&record, 4, Cut::Kill), b"oNEW\0\0\0\0\0!");
    }

    #[test]
    fn a_torn_write_survives_in_whole_sectors() {
        let record = Record { ops: vec![write(100, &[7; 2000])], ..Record::default() };
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..64 {
            let image = record.image(1, Cut::Torn, &SeededRandom::new(seed));
            let mut file = image.files["a"].clone();
            file.resize(2100, 0);
            let pattern: Vec<bool> = [100, 512, 1024, 1536, 2048].iter().map(|&at| file[at] == 7).collect();
            for (at, byte) in file.iter().enumerate().skip(100) {
                assert_eq!(*byte == 7, pattern[at / SECTOR], "sector {} is whole", at / SECTOR);
            }
            seen.insert(pattern);
        }
        assert!(seen.len() > 16, "many ways to tear: {}", seen.len());
    }

    #[test]
    fn deleted_files_are_gone_and_truncated_ones_short() {
        let ops = vec![
            write(0, b"abc"),
            Op::Truncate { file: "a".into(), length: 1 },
            Op::Delete { file: "a".into() },
        ];
        let record = Record { ops, ..Record::default() };
        assert_eq!(bytes(&record, 2, Cut::Kill), b"a");
        assert_eq!(record.image(3, Cut::Kill, &SeededRandom::new(1)), Image::default());
    }
}
