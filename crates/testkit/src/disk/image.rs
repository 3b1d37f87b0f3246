//! What is on the disk after a cut.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use twobox_core::{Error, Random};

use super::fault::Kind;
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

    /// Whether chance decides what survives.
    #[must_use]
    pub fn is_random(self) -> bool {
        matches!(self, Self::Subset | Self::Torn)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Lost => "lost",
            Self::Subset => "subset",
            Self::Torn => "torn",
        }
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Cut {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|cut| cut.name() == text);
        known.ok_or_else(|| Error::invalid(format!("no such cut: {text}")))
    }
}

/// The files of a disk at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    pub(super) files: BTreeMap<Name, Vec<u8>>,
}

impl Record {
    /// What a cut before `step` leaves. `random` decides about what was not synced.
    #[must_use]
    pub fn image(&self, step: usize, cut: Cut, random: &dyn Random) -> Image {
        let mut walk = self.walk();
        walk.go_to(step);
        walk.image(cut, random)
    }

    /// A walk through the record, for those who want images of many steps.
    #[must_use]
    pub fn walk(&self) -> Walk<'_> {
        let files = self.base.iter().map(|(name, bytes)| (name, File::durable(bytes))).collect();
        Walk { ops: &self.ops, step: 0, files, before: Vec::new() }
    }
}

/// The files of a disk by their names.
type Files<'a> = BTreeMap<&'a Name, File<'a>>;

/// A place in a [`Record`], with the files as they are there. It only goes forward.
#[derive(Debug)]
pub struct Walk<'a> {
    ops: &'a [Op],
    step: usize,
    files: Files<'a>,
    /// The files as they were before each renaming that may still be forgotten. Nothing writes in between.
    before: Vec<Files<'a>>,
}

impl<'a> Walk<'a> {
    /// Goes to the place before `step`.
    pub fn go_to(&mut self, step: usize) {
        while self.step < step.min(self.ops.len()) {
            self.take(&self.ops[self.step]);
            self.step += 1;
        }
    }

    /// Whether every cut here leaves the same.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.before.is_empty() && self.files.values().all(File::is_durable)
    }

    fn take(&mut self, op: &'a Op) {
        match op {
            Op::Mark(_) => {}
            Op::Sync { file } => {
                self.file(file).sync();
                self.directory_synced();
            }
            Op::Delete { file, synced } => {
                self.file(file).delete();
                if *synced {
                    self.directory_synced();
                }
            }
            Op::SyncFolder => self.directory_synced(),
            Op::Rename { from, to } => {
                self.before.push(self.files.clone());
                if let Some(file) = self.files.remove(from) {
                    self.files.insert(to, file);
                }
            }
            Op::Link { from, to } => {
                self.before.push(self.files.clone());
                if let Some(file) = self.files.get(from).cloned() {
                    self.files.insert(to, file);
                }
            }
            Op::Failed { file, kind: Kind::SyncDroppingPages } => self.file(file).drop_pages(),
            Op::Failed { file, kind: Kind::SyncKeepingPages } => self.file(file).keep_pages(),
            Op::Failed { .. } => {}
            Op::Write { file, .. } | Op::Truncate { file, .. } => self.file(file).change(op),
        }
    }

    fn file(&mut self, name: &'a Name) -> &mut File<'a> {
        self.files.entry(name).or_default()
    }

    /// File systems with a journal write it in order: whatever is synced takes earlier deletions and names along.
    fn directory_synced(&mut self) {
        self.before.clear();
        self.files.retain(|_, file| {
            file.deleted = None;
            file.exists
        });
    }

    /// What a cut here leaves. `random` decides about what was not synced.
    #[must_use]
    pub fn image(&self, cut: Cut, random: &dyn Random) -> Image {
        let survived =
            |(name, file): (&&Name, &File<'_>)| Some((Name::clone(name), file.after(cut, random)?));
        Image { files: self.names(cut, random).iter().filter_map(survived).collect() }
    }

    /// The names that a cut here leaves: those of now, or those before one of the last renamings.
    fn names(&self, cut: Cut, random: &dyn Random) -> &Files<'a> {
        let earlier = match cut {
            Cut::Kill => None,
            Cut::Lost => self.before.first(),
            _ if self.before.is_empty() => None,
            Cut::Subset | Cut::Torn => {
                let choice = random.next_u64() % (self.before.len() as u64 + 1);
                usize::try_from(choice).ok().and_then(|choice| self.before.get(choice))
            }
        };
        earlier.unwrap_or(&self.files)
    }
}

/// A file and what was done to it since its last sync.
#[derive(Clone, Debug, Default)]
struct File<'a> {
    exists: bool,
    /// What is on the disk.
    durable: Cow<'a, [u8]>,
    /// What is read, if that is not what is on the disk with what is pending.
    visible: Option<Vec<u8>>,
    pending: Vec<&'a Op>,
    /// What was on the disk under this name before a deletion that may still be forgotten.
    deleted: Option<Cow<'a, [u8]>>,
}

impl<'a> File<'a> {
    fn durable(bytes: &'a [u8]) -> Self {
        Self { exists: true, durable: Cow::Borrowed(bytes), ..Self::default() }
    }

    fn is_durable(&self) -> bool {
        self.pending.is_empty() && self.visible.is_none() && self.deleted.is_none()
    }

    fn change(&mut self, op: &'a Op) {
        self.exists = true;
        if let Some(visible) = &mut self.visible {
            apply(visible, op);
        }
        self.pending.push(op);
    }

    fn sync(&mut self) {
        for op in std::mem::take(&mut self.pending) {
            apply(self.durable.to_mut(), op);
        }
    }

    fn delete(&mut self) {
        let deleted = self.deleted.take().or_else(|| self.exists.then(|| std::mem::take(&mut self.durable)));
        *self = Self { deleted, ..Self::default() };
    }

    fn drop_pages(&mut self) {
        self.pending.clear();
        self.visible = None;
    }

    fn keep_pages(&mut self) {
        self.visible = Some(self.visible());
        self.pending.clear();
    }

    fn visible(&self) -> Vec<u8> {
        self.visible.clone().unwrap_or_else(|| {
            let mut bytes = self.durable.to_vec();
            self.pending.iter().for_each(|op| apply(&mut bytes, op));
            bytes
        })
    }

    fn after(&self, cut: Cut, random: &dyn Random) -> Option<Vec<u8>> {
        let coin = || random.next_u64().is_multiple_of(2);
        if cut == Cut::Kill {
            return self.exists.then(|| self.visible());
        }
        if let Some(deleted) = &self.deleted
            && (cut == Cut::Lost || coin())
        {
            return Some(deleted.to_vec());
        }
        let mut bytes = self.durable.to_vec();
        for op in &self.pending {
            match cut {
                Cut::Subset if coin() => apply(&mut bytes, op),
                Cut::Torn => tear(&mut bytes, op, coin),
                Cut::Kill | Cut::Lost | Cut::Subset => {}
            }
        }
        self.exists.then_some(bytes)
    }
}

/// Does what was done.
fn apply(bytes: &mut Vec<u8>, op: &Op) {
    match op {
        Op::Write { offset, data, .. } => put(bytes, usize::try_from(*offset).unwrap_or(usize::MAX), data),
        Op::Truncate { length, .. } => bytes.truncate(usize::try_from(*length).unwrap_or(usize::MAX)),
        _ => {}
    }
}

/// Does what was done, sector by sector, as far as `survives` says.
fn tear(bytes: &mut Vec<u8>, op: &Op, survives: impl Fn() -> bool) {
    match op {
        Op::Write { offset, data, .. } => {
            let start = usize::try_from(*offset).unwrap_or(usize::MAX);
            sectors(start, data).filter(|_| survives()).for_each(|(at, part)| put(bytes, at, part));
        }
        _ if survives() => apply(bytes, op),
        _ => {}
    }
}

fn put(bytes: &mut Vec<u8>, at: usize, part: &[u8]) {
    let end = at + part.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[at..end].copy_from_slice(part);
}

/// The parts of a write that lie in different sectors, with their places.
fn sectors(start: usize, data: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= data.len() {
            return None;
        }
        let place = start + at;
        let end = (at + SECTOR - place % SECTOR).min(data.len());
        let part = (place, &data[at..end]);
        at = end;
        Some(part)
    })
}

impl Image {
    /// The same files have the same fingerprint.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.files.iter().fold(0, |print, (name, bytes)| {
            let length = bytes.len() as u64;
            fingerprint(bytes, fingerprint(name.as_bytes(), print ^ length))
        })
    }

    /// The files, by the path they had.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(name, bytes)| (&**name, bytes.as_slice()))
    }
}

/// A hash of many bytes in little time, for telling contents apart that nobody has made up to be alike.
#[must_use]
pub fn fingerprint(bytes: &[u8], seed: u64) -> u64 {
    /// Words that are hashed side by side, because one after the other the processor would have to wait.
    const LANES: usize = 4;
    let mut lanes = [seed, !seed, seed.rotate_left(16), seed.rotate_left(32)];
    let mut blocks = bytes.chunks_exact(8 * LANES);
    for block in blocks.by_ref() {
        for (lane, word) in lanes.iter_mut().zip(block.chunks_exact(8)) {
            *lane = fold(*lane, word.try_into().map_or(0, u64::from_le_bytes));
        }
    }
    let rest = blocks.remainder().iter().fold(seed, |print, byte| fold(print, u64::from(*byte) + 1));
    lanes.into_iter().fold(rest, fold)
}

/// For each value of the one, different values of the other give different results.
fn fold(print: u64, word: u64) -> u64 {
    let mixed = (print.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SeededRandom;

    fn write(offset: u64, data: &[u8]) -> Op {
        Op::Write { file: "a".into(), offset, data: data.to_vec() }
    }

    fn sync() -> Op {
        Op::Sync { file: "a".into() }
    }

    fn delete() -> Op {
        Op::Delete { file: "a".into(), synced: false }
    }

    fn record(ops: Vec<Op>) -> Record {
        Record { ops, ..Record::default() }
    }

    fn found(record: &Record, step: usize, cut: Cut) -> Option<Vec<u8>> {
        record.image(step, cut, &SeededRandom::new(1)).files.remove("a")
    }

    fn bytes(record: &Record, step: usize, cut: Cut) -> Vec<u8> {
        found(record, step, cut).unwrap_or_default()
    }

    #[test]
    fn only_what_was_synced_survives_a_power_cut_and_everything_survives_a_kill() {
        let record = record(vec![write(0, b"one"), sync(), write(1, b"NEW"), write(9, b"!")]);
        assert_eq!(bytes(&record, 1, Cut::Lost), b"");
        assert_eq!(bytes(&record, 2, Cut::Lost), b"one");
        assert_eq!(bytes(&record, 4, Cut::Lost), b"one");
        assert_eq!(bytes(&record, 4, Cut::Kill), b"oNEW\0\0\0\0\0!");
    }

    #[test]
    fn a_torn_write_survives_in_whole_sectors() {
        let record = record(vec![write(100, &[7; 2000])]);
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
        let ops = vec![write(0, b"abc"), Op::Truncate { file: "a".into(), length: 1 }, delete()];
        let record = record(ops);
        assert_eq!(bytes(&record, 2, Cut::Kill), b"a");
        assert_eq!(record.image(3, Cut::Kill, &SeededRandom::new(1)), Image::default());
    }

    #[test]
    fn every_cut_leaves_the_same_once_all_is_synced() {
        let record = record(vec![write(0, b"old"), sync(), delete(), sync()]);
        for (step, is_durable) in [(0, true), (1, false), (2, true), (3, false), (4, true)] {
            let mut walk = record.walk();
            walk.go_to(step);
            assert_eq!(walk.is_durable(), is_durable, "{step}");
        }
    }

    #[test]
    fn a_deletion_can_be_forgotten_until_something_is_synced() {
        let other = Op::Sync { file: "b".into() };
        let record = record(vec![write(0, b"old"), sync(), delete(), write(0, b"new"), other]);
        assert_eq!(found(&record, 3, Cut::Kill), None);
        assert_eq!(found(&record, 3, Cut::Lost).unwrap(), b"old");
        assert_eq!(found(&record, 4, Cut::Kill).unwrap(), b"new");
        assert_eq!(found(&record, 4, Cut::Lost).unwrap(), b"old");
        assert_eq!(found(&record, 5, Cut::Lost).unwrap(), b"", "the new one is there, its bytes are not");
    }

    #[test]
    fn a_new_name_can_be_forgotten_until_something_is_synced_and_names_are_remembered_in_order() {
        let named = |from: &str, to: &str| Op::Rename { from: from.into(), to: to.into() };
        let linked = Op::Link { from: "a".into(), to: "b".into() };
        let ops = vec![write(0, b"old"), sync(), linked, named("a", "c"), Op::SyncFolder];
        let record = record(ops);
        let names = |step, cut, seed| {
            let image = record.image(step, cut, &SeededRandom::new(seed));
            image.files.keys().map(ToString::to_string).collect::<Vec<_>>().concat()
        };
        assert_eq!(names(4, Cut::Kill, 0), "bc");
        assert_eq!(names(4, Cut::Lost, 0), "a");
        assert_eq!(names(5, Cut::Lost, 0), "bc");
        let seen: std::collections::BTreeSet<_> = (0..32).map(|seed| names(4, Cut::Torn, seed)).collect();
        assert_eq!(seen, ["a", "ab", "bc"].map(str::to_owned).into());
        assert_eq!(record.image(4, Cut::Kill, &SeededRandom::new(0)).files["c"], b"old");
    }

    #[test]
    fn pages_of_a_failed_sync_never_become_durable() {
        for (kind, visible) in [(Kind::SyncDroppingPages, b"old"), (Kind::SyncKeepingPages, b"new")] {
            let failed = Op::Failed { file: "a".into(), kind };
            let record = record(vec![write(0, b"old"), sync(), write(0, b"new"), failed, sync()]);
            assert_eq!(bytes(&record, 5, Cut::Kill), visible);
            assert_eq!(bytes(&record, 5, Cut::Lost), b"old");
        }
    }

    #[test]
    fn fingerprints_differ_when_a_byte_does() {
        let image = |bytes: Vec<u8>| Image { files: [("a".into(), bytes)].into() };
        let plain = vec![0_u8; 4099];
        let mut seen = std::collections::BTreeSet::from([image(plain.clone()).fingerprint()]);
        for at in 0..plain.len() {
            let mut other = plain.clone();
            other[at] = 1;
            assert!(seen.insert(image(other).fingerprint()), "byte {at}");
        }
        assert!(seen.insert(image(vec![0; 4098]).fingerprint()), "the length counts");
    }
}
