//! From SQLite's errors to ours.

use rusqlite::ErrorCode;
use twobox_core::{Error, ErrorKind};

/// Wraps an error of a statement: what was attempted, and what the caller can do about it.
pub(crate) fn wrap(attempted: &str) -> impl FnOnce(rusqlite::Error) -> Error + '_ {
    move |error| Error::new(kind(&error), remedy(attempted, kind(&error))).with_source(error)
}

/// What a caller can act on.
pub(crate) fn kind(error: &rusqlite::Error) -> ErrorKind {
    let rusqlite::Error::SqliteFailure(failure, text) = error else {
        return match error {
            rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::Utf8Error(..)
            | rusqlite::Error::IntegralValueOutOfRange(..) => ErrorKind::Undecodable,
            rusqlite::Error::SqlInputError { msg, .. } if msg.starts_with("no such table") => {
                ErrorKind::Schema
            }
            _ => ErrorKind::Statement,
        };
    };
    // Over a quota, beyond the size that a file may have, or open while its disk became read-only: SQLite calls only
    // one way of not taking more by its name.
    if failure.extended_code == rusqlite::ffi::SQLITE_IOERR_WRITE {
        return ErrorKind::Full;
    }
    match failure.code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => ErrorKind::Busy,
        ErrorCode::ReadOnly => ErrorKind::ReadOnly,
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => ErrorKind::Corrupt,
        ErrorCode::DiskFull => ErrorKind::Full,
        ErrorCode::SystemIoFailure | ErrorCode::CannotOpen | ErrorCode::OutOfMemory => ErrorKind::Unavailable,
        ErrorCode::AuthorizationForStatementDenied => ErrorKind::Invalid,
        _ if text.as_deref().is_some_and(|text| text.starts_with("no such table")) => ErrorKind::Schema,
        _ => ErrorKind::Statement,
    }
}

/// Whether the file takes nothing: there is no room, or it is read-only. Nothing was written and no sync has failed, so
/// what was read before is as true as ever.
pub(crate) fn is_unwritable(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Full | ErrorKind::ReadOnly)
}

/// Whether the database itself is in trouble: damaged, unreadable, full or not writable. Then nobody who uses it is
/// to blame, and nothing that was read can be trusted.
pub(crate) fn is_trouble(error: &rusqlite::Error) -> bool {
    // A virtual table that contradicts itself, which a single statement of a handler can bring about.
    if matches!(error, rusqlite::Error::SqliteFailure(failure, _) if failure.extended_code == rusqlite::ffi::SQLITE_CORRUPT_VTAB)
    {
        return false;
    }
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::ReadOnly
                | ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::DiskFull
        )
    )
}

fn remedy(attempted: &str, kind: ErrorKind) -> String {
    let remedy = match kind {
        ErrorKind::Busy => "another connection holds the write lock; keep transactions short",
        ErrorKind::Full => {
            "the disk that holds the database takes nothing more; make room or make it writable, and it goes on by itself"
        }
        ErrorKind::ReadOnly => "the database is read-only; check its permissions and those of its directory",
        ErrorKind::Corrupt => "the database is damaged; nothing was changed, restore a backup",
        ErrorKind::Schema => "a table is missing; call migrate() or run the printed migrations first",
        ErrorKind::Invalid => {
            "transaction control, ATTACH, PRAGMA and temporary tables are not allowed inside a transaction that Twobox commits"
        }
        _ => return format!("cannot {attempted}"),
    };
    format!("cannot {attempted}: {remedy}")
}
