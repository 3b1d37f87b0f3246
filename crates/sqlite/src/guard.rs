//! Keeps user SQL from ending, splitting or bypassing the transaction it runs in (W2, S4).

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use twobox_core::{Error, ErrorKind, Random, Result};

use crate::error::wrap;

crate::sync::thread_local! {
    /// Whether this thread is inside a transaction of some writer (W8).
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Controls what may happen on the writer's connection, and holds its control statements.
pub(crate) struct Guard {
    user_code: Arc<AtomicBool>,
    commit_allowed: Arc<AtomicBool>,
    begin: String,
    commit: String,
    savepoint: String,
    release: String,
    undo: String,
}

impl Guard {
    /// Installs the hooks.
    pub(crate) fn install(connection: &mut Connection, random: &dyn Random) -> Result<Self> {
        let user_code = Arc::new(AtomicBool::new(false));
        let commit_allowed = Arc::new(AtomicBool::new(false));
        let denied = Arc::clone(&user_code);
        connection
            .authorizer(Some(move |context: AuthContext<'_>| {
                if denied.load(Ordering::Relaxed) { authorize(&context) } else { Authorization::Allow }
            }))
            .map_err(wrap("install the authorizer"))?;
        let allowed = Arc::clone(&commit_allowed);
        connection
            .commit_hook(Some(move || !allowed.load(Ordering::Relaxed)))
            .map_err(wrap("install the commit hook"))?;
        // The name is a secret: prepared statements are cached by their text, and a cached one is not
        // authorised again, so user SQL must not be able to repeat it.
        let name = format!("twobox_{:016x}{:016x}", random.next_u64(), random.next_u64());
        Ok(Self {
            user_code,
            commit_allowed,
            begin: format!("BEGIN IMMEDIATE /* {name} */"),
            commit: format!("COMMIT /* {name} */"),
            savepoint: format!("SAVEPOINT {name}"),
            release: format!("RELEASE {name}"),
            undo: format!("ROLLBACK TO {name}"),
        })
    }

    /// Until the returned value is dropped, user code runs.
    pub(crate) fn user_code(&self) -> UserCode<'_> {
        UserCode { flag: &self.user_code, before: self.user_code.swap(true, Ordering::Relaxed) }
    }

    pub(crate) fn begin(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.control(connection, &self.begin)
    }

    /// Commits: the one commit that the hook lets through.
    pub(crate) fn commit(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.commit_allowed.store(true, Ordering::Relaxed);
        let result = self.control(connection, &self.commit);
        self.commit_allowed.store(false, Ordering::Relaxed);
        result
    }

    /// Runs `work` with commits allowed: for pragmas and checkpoints outside of any transaction.
    pub(crate) fn unguarded<T>(&self, work: impl FnOnce() -> T) -> T {
        self.commit_allowed.store(true, Ordering::Relaxed);
        let value = work();
        self.commit_allowed.store(false, Ordering::Relaxed);
        value
    }

    pub(crate) fn rollback(&self, connection: &Connection) -> rusqlite::Result<()> {
        if connection.is_autocommit() { Ok(()) } else { connection.execute_batch("ROLLBACK") }
    }

    pub(crate) fn savepoint(&self, connection: &Connection) -> Result<()> {
        self.control(connection, &self.savepoint).map_err(wrap("open a savepoint"))
    }

    pub(crate) fn release(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.control(connection, &self.release)
    }

    pub(crate) fn undo(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.control(connection, &self.undo)?;
        self.control(connection, &self.release)
    }

    fn control(&self, connection: &Connection, sql: &str) -> rusqlite::Result<()> {
        let before = self.user_code.swap(false, Ordering::Relaxed);
        let result = connection.prepare_cached(sql).and_then(|mut statement| statement.execute([])).map(drop);
        self.user_code.store(before, Ordering::Relaxed);
        result
    }
}

/// Resets the flag when user code ends, panic or not.
pub(crate) struct UserCode<'g> {
    flag: &'g AtomicBool,
    before: bool,
}

impl Drop for UserCode<'_> {
    fn drop(&mut self) {
        self.flag.store(self.before, Ordering::Relaxed);
    }
}

fn authorize(context: &AuthContext<'_>) -> Authorization {
    // However it is spelt, a temporary table of the same name would stand in front of ours.
    let reads = matches!(
        context.action,
        AuthAction::Read { .. } | AuthAction::Select | AuthAction::Function { .. } | AuthAction::Recursive
    );
    if context.database_name == Some("temp") && !reads {
        return Authorization::Deny;
    }
    match context.action {
        AuthAction::Transaction { .. }
        | AuthAction::Savepoint { .. }
        | AuthAction::Attach { .. }
        | AuthAction::Detach { .. }
        | AuthAction::Pragma { .. }
        | AuthAction::CreateTempTable { .. }
        | AuthAction::CreateTempView { .. }
        | AuthAction::CreateTempTrigger { .. } => Authorization::Deny,
        _ => Authorization::Allow,
    }
}

/// Marks the thread as being inside a transaction until dropped.
pub(crate) struct Inside(());

impl Inside {
    pub(crate) fn enter() -> Self {
        INSIDE.with(|inside| inside.set(true));
        Self(())
    }

    /// Refuses a call that would wait for the transaction it is made from.
    pub(crate) fn refuse() -> Result<()> {
        if !INSIDE.with(Cell::get) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Reentrant,
            "the database was called from inside its own transaction, which would deadlock: use the transaction \
             that the closure was given",
        ))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.set(false));
    }
}
