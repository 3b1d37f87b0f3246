//! Power cuts at every step of the disk.
//!
//! A workload runs on a [`Disk`](twobox_testkit::disk::Disk) that records every write and sync, and notes what was
//! acknowledged when. Then, for every step of the record and every kind of cut, the files as the cut leaves them are
//! opened by the real store, recovered by it, and checked: what had been acknowledged before the cut is there, no
//! effect is there twice or by half, and whatever was open is finished.

mod billing;
mod images;
mod run;
mod shop;

pub use self::images::{Tally, Violation, check_images};
pub use self::run::{Side, Workload};
pub(crate) use self::run::{folder, runtime};
