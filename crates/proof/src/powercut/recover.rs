//! What SQLite makes of an image.

use std::path::Path;

use rusqlite::Connection;
use twobox_testkit::disk::{Image, fingerprint, keep_log, write_over};

/// Puts the files of the image into the folder, and nothing else.
pub(super) fn put(image: &Image, folder: &Path) -> std::io::Result<()> {
    let mut wanted = Vec::new();
    for (name, bytes) in image.files() {
        let path = folder.join(Path::new(name).file_name().unwrap_or_default());
        write_over(&path, bytes)?;
        wanted.push(path);
    }
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if !wanted.contains(&path) {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Lets SQLite recover a database and bring it home into its one file. Returns the fingerprint of its pages: databases
/// with the same one are the same to everybody who uses SQLite, however differently they lay on the disk.
///
/// What is in the pages is not looked at: reading the schema alone takes ten times as long as all of this. See [`check`].
pub(super) fn recover(path: &Path) -> Result<u64, String> {
    let text = |error: rusqlite::Error| format!("cannot be recovered: {error}");
    let connection = Connection::open(path).map_err(text)?;
    // Nobody else is there, so nothing need be shared.
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE").map_err(text)?;
    keep_log(&connection);
    // Recovers; and the last one to close it copies its log into it.
    connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK").map_err(text)?;
    connection.close().map_err(|(_, error)| text(error))?;
    let bytes = std::fs::read(path).map_err(|error| format!("cannot be recovered: {error}"))?;
    Ok(fingerprint(&bytes, bytes.len() as u64))
}

/// Lets SQLite check a recovered database. What it says depends on nothing but the pages.
pub(super) fn check(path: &Path) -> Result<(), String> {
    let text = |error: rusqlite::Error| format!("cannot be checked: {error}");
    let connection = Connection::open(path).map_err(text)?;
    let verdict: String =
        connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(text)?;
    if verdict == "ok" { Ok(()) } else { Err(format!("damaged: {verdict}")) }
}
