//! What SQLite makes of an image.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use twobox_testkit::disk::{Image, fingerprint};

/// Puts the files of the image into the folder, and nothing else.
pub(super) fn put(image: &Image, folder: &Path) -> std::io::Result<()> {
    let mut wanted = Vec::new();
    for (name, bytes) in image.files() {
        let path = folder.join(Path::new(name).file_name().unwrap_or_default());
        // Written over what is there: new memory for every image would cost more than anything else here.
        let mut file = File::options().create(true).write(true).truncate(false).open(&path)?;
        file.write_all(bytes)?;
        file.set_len(bytes.len() as u64)?;
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

/// Opens a database, which recovers it, and checks it. Returns the fingerprint of its pages: databases with the same one
/// are the same to everybody who uses SQLite, however differently they lie on the disk.
pub(super) fn recover(path: &Path) -> Result<u64, String> {
    let text = |error: rusqlite::Error| format!("cannot be recovered: {error}");
    let mut connection = Connection::open(path).map_err(text)?;
    // Nobody else is there, so nothing need be shared; and what is looked at is not tidied up.
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE").map_err(text)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(text)?;
    let verdict: String =
        connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(text)?;
    if verdict != "ok" {
        return Err(format!("damaged: {verdict}"));
    }
    let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0)).map_err(text)?;
    if pages == 0 {
        return Ok(0);
    }
    let bytes = connection.serialize(rusqlite::MAIN_DB).map_err(text)?;
    Ok(fingerprint(&bytes, bytes.len() as u64))
}
