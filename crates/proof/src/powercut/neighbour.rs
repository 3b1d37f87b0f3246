//! Another process that uses the file now and then.

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use twobox_testkit::disk::Disk;

use super::workload::Store;

/// Comes, writes a row of its own, and goes. What the store has in its cache is old then, so it reads the disk again. The
/// neighbour never syncs, so no failed sync goes unnoticed by the store, and it is promised nothing.
pub(super) fn visit(store: &Store, disk: &Disk) {
    let _: rusqlite::Result<()> = write(store, disk);
}

fn write(store: &Store, disk: &Disk) -> rusqlite::Result<()> {
    let connection = Connection::open_with_flags_and_vfs(store.db.path(), OpenFlags::default(), disk.name())?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.execute_batch(
        "PRAGMA synchronous = OFF; PRAGMA wal_autocheckpoint = 0;
         BEGIN IMMEDIATE;
         CREATE TABLE IF NOT EXISTS visits (n INTEGER PRIMARY KEY);
         INSERT INTO visits DEFAULT VALUES;
         COMMIT;",
    )
}
