//! Power cuts and failing calls at every step of the disk.
//!
//! A [`Workload`] runs on a [`Disk`](twobox_testkit::disk::Disk) that records every write and sync, and notes who was
//! told what when. Then, for every step of the record and every kind of cut, the files are put down as the cut leaves
//! them, and SQLite recovers and checks them. The real store takes on every state that is found that way: it opens the
//! files, delivers what is open, is given everything again. What had been acknowledged before the cut must be there, no
//! effect twice or by half, and nothing may stay open.
//!
//! With a [`Fault`](twobox_testkit::disk::Fault) a call of the disk fails on the way: then the run itself must also
//! come to its end, by the store's own recovery.
//!
//! | function | does |
//! | --- | --- |
//! | [`check_images`] | every image of one workload |
//! | [`check_fault`] | one workload with a call that fails |
//! | [`check_faults`] | one workload with each call failing in turn |
//! | [`check_copies`] | a backup and a restore, every step of them |
//! | [`campaign`] | all of them, for as many seeds as there is time for |
//! | [`replay`] | one case again |
//! | [`check_control`] | a design that is known to be wrong, to see that it is found out |

mod billing;
mod campaign;
mod case;
mod claims;
mod control;
mod copies;
mod faults;
mod images;
mod neighbour;
mod queue;
mod recover;
mod shop;
mod style;
mod told;
mod workload;

pub use self::campaign::{campaign, replay};
pub use self::case::{Case, Violation};
pub use self::control::{Control, check_control};
pub use self::copies::{Syncs, check_copies};
pub use self::faults::{Sample, check_fault, check_faults, fault_calls};
pub use self::images::{Tally, check_images};
pub use self::workload::{Side, Workload};
pub(crate) use self::workload::{folder, runtime};
