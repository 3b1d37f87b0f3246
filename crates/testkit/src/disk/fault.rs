//! Calls that fail.

/// Which calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Syncs; nothing else happens.
    Sync,
    /// Syncs, as a kernel does it that drops the pages it could not write: what was written since the last good sync
    /// is gone, and the next sync reports success.
    SyncDroppingPages,
}

/// Lets one call fail: the `nth` of its kind from now on, counted from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which calls are counted.
    pub kind: Kind,
    /// Which of them fails.
    pub nth: u64,
}

impl Fault {
    /// Whether this call of `kind` is the one; counts it.
    pub(super) fn strikes(&mut self, kind: Kind) -> bool {
        let counts = self.kind == kind || (self.kind == Kind::SyncDroppingPages && kind == Kind::Sync);
        if !counts {
            return false;
        }
        let strikes = self.nth == 0;
        self.nth = self.nth.wrapping_sub(1);
        strikes
    }
}
