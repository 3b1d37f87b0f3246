//! The writer: group commit, what user SQL may do, enqueueing, sharing, load, trouble, syncing.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod ahead;
mod control;
mod enqueue;
mod figures;
mod fixture;
mod group;
mod load;
mod plain_sql;
mod queue;
mod recent;
mod schema;
mod sharing;
mod sync;
mod trouble;
