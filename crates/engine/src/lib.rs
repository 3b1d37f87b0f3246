//! The moving parts of Twobox: relay, receiver, worker, sweeper, backups, the in-process transport, what replays dead
//! letters, what writes down what operators do, and what shows figures.
//!
//! They are generic over the ports of `twobox-core`. Time, chance, store and transport are injected, and no
//! part starts a thread of its own: on a single-threaded runtime with a manual clock a run is deterministic.

mod alarm;
mod audit;
mod backups;
mod events;
mod in_process;
mod patience;
pub mod prometheus;
pub mod receiver;
pub mod relay;
pub mod replay;
mod shutdown;
mod started;
mod sweeper;
mod sync;
mod timer;
pub mod worker;

pub use crate::audit::{audited, audited_with};
pub use crate::backups::{BackupPlan, BackupStatus, Backups};
pub use crate::in_process::InProcess;
pub use crate::patience::Patience;
pub use crate::receiver::Receiver;
pub use crate::relay::Relay;
pub use crate::replay::{Bulk, OutboxLetters, SentMessages};
pub use crate::shutdown::{Shutdown, ShutdownHandle};
pub use crate::sweeper::Sweeper;
pub use crate::timer::{SystemTimer, Timer};
pub use crate::worker::Worker;
