//! Waking relays when another process has written.
//!
//! Our own commits wake them directly. For others there are two signs: the write-ahead log changes, which any
//! writer causes, and the doorbell file beside the database, which our library touches after a commit that
//! enqueued something. The log changes *before* the commit is visible, so a watcher must keep looking for a
//! while; a slow look every second is the safety net.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use twobox_core::one_line;

use crate::shared::Shared;
use crate::sync::Mutex;
use crate::writer::Core;

/// How often the watcher looks although nothing was signalled.
const SAFETY_NET: Duration = Duration::from_secs(1);
/// How often it looks when it cannot be told.
const BLIND: Duration = Duration::from_millis(50);
/// After an event the safety net is this close, and moves away from look to look.
const AFTER_EVENT: Duration = Duration::from_millis(1);
/// After a change of the write-ahead log the commit is visible within this time, or will not be.
const LOOK_FOR: Duration = Duration::from_millis(20);
const LOOK_FIRST: Duration = Duration::from_micros(20);
const LOOK_MAX: Duration = Duration::from_micros(500);
/// Least time between two looks.
const COALESCE: Duration = Duration::from_millis(1);
/// How often it looks while our own writer is busy.
const LOOK_BUSY: Duration = Duration::from_millis(5);
/// Our own writer is no longer busy when it has not committed for so long. If others write as well, [`LOOK_BUSY`] is
/// enough: what they have committed is to be noticed at once.
const QUIET: Duration = Duration::from_millis(50);

/// The path of a file that stands beside the database.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Opens the doorbell. Without one, other processes still notice by the write-ahead log.
pub(crate) fn open_bell(path: &Path) -> Option<File> {
    let path = beside(path, "-bell");
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .inspect_err(|error| {
            tracing::debug!(path = path.display().to_string(), error = one_line(&error), "no doorbell");
        })
        .ok()
}

/// Rings: other processes' watchers see the file change.
pub(crate) fn ring(bell: &File) {
    #[cfg(unix)]
    let rung = std::os::unix::fs::FileExt::write_at(bell, &[1], 0).map(drop);
    #[cfg(not(unix))]
    let rung = std::io::Seek::rewind(&mut &*bell).and_then(|()| std::io::Write::write_all(&mut &*bell, &[1]));
    if let Err(error) = rung {
        tracing::debug!(error = one_line(&error), "cannot ring the doorbell");
    }
}

/// A thread that watches the file. Dropping it stops the thread.
pub(crate) struct Watcher {
    stopped: Arc<AtomicBool>,
    #[cfg(target_os = "linux")]
    stop: std::os::unix::net::UnixStream,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        #[cfg(target_os = "linux")]
        {
            let _: std::io::Result<()> = self.stop.shutdown(std::net::Shutdown::Both);
        }
        #[cfg(not(target_os = "linux"))]
        self.thread.iter().for_each(|thread| thread.thread().unpark());
        let thread = self.thread.take().filter(|thread| thread.thread().id() != std::thread::current().id());
        if let Some(Err(_)) = thread.map(std::thread::JoinHandle::join) {
            tracing::error!("the watcher thread panicked");
        }
    }
}

/// Who knows whether others have written: the writer, whose own commits are no news.
struct Seen {
    shared: Arc<Shared>,
    core: Arc<Mutex<Core>>,
    /// Our own commits, which relays hear of directly.
    commits: u64,
    /// What others have committed.
    foreign: u64,
}

impl Seen {
    fn new(shared: &Arc<Shared>, core: &Arc<Mutex<Core>>) -> Self {
        Self { shared: Arc::clone(shared), core: Arc::clone(core), commits: 0, foreign: 0 }
    }

    /// Whether our own writer has committed since this was last asked.
    fn is_busy(&mut self) -> bool {
        let before = std::mem::replace(&mut self.commits, self.shared.commits());
        self.commits != before
    }

    /// Whether our own writer has committed since it was last asked whether it is busy.
    fn we_have_written(&self) -> bool {
        self.shared.commits() != self.commits
    }

    /// How long our own writer must not have committed to be no longer busy.
    fn quiet(&self) -> Duration {
        if self.shared.foreign() == self.foreign { QUIET } else { LOOK_BUSY }
    }

    /// From now on it counts what others commit.
    fn forget_others(&mut self) {
        self.foreign = self.shared.foreign();
    }

    /// Wakes relays if another connection has committed since. Says whether there is no need to look again soon: also
    /// while the writer is at work, which looks by itself.
    fn look(&mut self) -> bool {
        self.core.try_lock().map_or(true, |mut core| core.look_for_others())
    }
}

#[cfg(not(target_os = "linux"))]
impl Watcher {
    /// Without a way to be told, looks several times a second.
    pub(crate) fn spawn(shared: &Arc<Shared>, core: &Arc<Mutex<Core>>) -> Option<Self> {
        let stopped = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stopped);
        let mut seen = Seen::new(shared, core);
        let thread = std::thread::Builder::new()
            .name("twobox-watcher".into())
            .spawn(move || {
                while !flag.load(Ordering::Acquire) {
                    seen.look();
                    std::thread::park_timeout(BLIND);
                }
            })
            .inspect_err(|error| tracing::warn!(error = one_line(error), "cannot watch the database file"))
            .ok()?;
        Some(Self { stopped, thread: Some(thread) })
    }
}

#[cfg(target_os = "linux")]
impl Watcher {
    /// Watches by inotify.
    pub(crate) fn spawn(shared: &Arc<Shared>, core: &Arc<Mutex<Core>>) -> Option<Self> {
        Self::try_spawn(Seen::new(shared, core))
            .inspect_err(|error| tracing::warn!(error = one_line(error), "cannot watch the database file"))
            .ok()
    }

    fn try_spawn(mut seen: Seen) -> std::io::Result<Self> {
        let (stop, stop_of_thread) = std::os::unix::net::UnixStream::pair()?;
        let eyes = linux::Eyes::new(&seen.shared.opener.path, stop_of_thread);
        let stopped = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stopped);
        let thread = std::thread::Builder::new()
            .name("twobox-watcher".into())
            .spawn(move || linux::run(&eyes, &mut seen, &flag))?;
        Ok(Self { stopped, stop, thread: Some(thread) })
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::cell::Cell;
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

    use twobox_core::one_line;

    use super::{
        AFTER_EVENT, BLIND, COALESCE, LOOK_BUSY, LOOK_FIRST, LOOK_FOR, LOOK_MAX, SAFETY_NET, Seen, beside,
    };

    /// What the watcher sleeps on.
    pub(super) struct Eyes {
        /// `None` when the system has no watches left; then there is only the safety net, at short intervals.
        inotify: Option<OwnedFd>,
        /// The write-ahead log and the doorbell.
        paths: [PathBuf; 2],
        /// The watch of the write-ahead log.
        log: Cell<Option<i32>>,
        stop: UnixStream,
    }

    impl Eyes {
        pub(super) fn new(path: &Path, stop: UnixStream) -> Self {
            let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
            let inotify = inotify
                .inspect_err(|error| tracing::warn!(error = one_line(error), "no inotify; looking instead"))
                .ok();
            let eyes = Self {
                inotify,
                paths: [beside(path, "-wal"), beside(path, "-bell")],
                log: Cell::new(None),
                stop,
            };
            eyes.watch();
            eyes
        }

        /// Leaves the write-ahead log alone: while it is watched, every write to it costs whoever writes.
        fn look_away(&self) {
            if let (Some(inotify), Some(log)) = (&self.inotify, self.log.take()) {
                let _: rustix::io::Result<()> = inotify::remove_watch(inotify, log);
            }
        }

        /// Watches the files as they are now. Done again and again, because a file that was removed and made anew
        /// is another file; for one that is watched already it changes nothing.
        fn watch(&self) {
            let Some(inotify) = &self.inotify else { return };
            // One that does not exist yet is found at the next look.
            let add = |path| inotify::add_watch(inotify, path, WatchFlags::MODIFY).ok();
            self.log.set(add(&self.paths[0]));
            let _: Option<i32> = add(&self.paths[1]);
        }

        /// Sleeps until something happens; says whether it was a change of a watched file.
        fn sleep(&self, net: Duration) -> bool {
            let mut fds = vec![PollFd::new(&self.stop, PollFlags::IN)];
            fds.extend(self.inotify.iter().map(|inotify| PollFd::new(inotify, PollFlags::IN)));
            let net = if self.inotify.is_some() { net } else { BLIND };
            let net = Timespec { tv_sec: net.as_secs().cast_signed(), tv_nsec: net.subsec_nanos().into() };
            let _: rustix::io::Result<usize> = poll(&mut fds, Some(&net));
            fds.get(1).is_some_and(|fd| fd.revents().contains(PollFlags::IN))
        }

        /// Forgets the events that have arrived: one look answers them all.
        fn drain(&self) {
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let Some(inotify) = &self.inotify else { return };
            let mut reader = inotify::Reader::new(inotify, &mut buffer);
            while reader.next().is_ok() {}
        }
    }

    pub(super) fn run(eyes: &Eyes, seen: &mut Seen, stopped: &AtomicBool) {
        seen.look();
        let mut net = SAFETY_NET;
        while !stopped.load(Ordering::Acquire) {
            if eyes.sleep(net) {
                eyes.drain();
                look_for_commit(seen);
                if seen.is_busy() {
                    sit_out(eyes, seen, stopped);
                } else {
                    std::thread::sleep(COALESCE);
                }
                // The change we saw may have been our own, and the commit behind the event still to come.
                net = AFTER_EVENT;
            } else {
                if net >= SAFETY_NET {
                    eyes.watch();
                }
                seen.look();
                net = (net * 2).min(SAFETY_NET);
            }
        }
    }

    /// Our own writer is busy: it looks for others at every commit, and relays are awake anyway.
    fn sit_out(eyes: &Eyes, seen: &mut Seen, stopped: &AtomicBool) {
        eyes.look_away();
        let mut quiet = Duration::ZERO;
        while quiet < seen.quiet() && !stopped.load(Ordering::Acquire) {
            std::thread::sleep(LOOK_BUSY);
            seen.look();
            quiet = if seen.is_busy() { Duration::ZERO } else { quiet + LOOK_BUSY };
        }
        seen.forget_others();
        eyes.drain(); // that one watch is over is an event as well
        eyes.watch();
    }

    /// The log changed: its commit becomes visible a little later, or it was rolled back, or it is our own.
    fn look_for_commit(seen: &mut Seen) {
        let mut pause = LOOK_FIRST;
        let mut waited = Duration::ZERO;
        while !seen.look() && !seen.we_have_written() && waited < LOOK_FOR {
            std::thread::sleep(pause);
            waited += pause;
            pause = (pause * 2).min(LOOK_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake, Waker};
    use std::time::Duration;

    use twobox_core::ports::LogStore;
    use twobox_testkit::eventually;

    use super::{LOOK_BUSY, QUIET, Seen};
    use crate::Sqlite;

    /// What our own writer commits is in memory, and relays are told of it. Only what others write has to be asked for.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn l7_own_commits_are_not_taken_for_those_of_others() {
        let folder = tempfile::tempdir().unwrap();
        let db = Sqlite::open(folder.path().join("shop.db")).await.unwrap();
        db.migrate().await.unwrap();
        let forgotten = || db.state.recent.generation();
        let before = forgotten();
        for _ in 0..50 {
            db.transaction(|tx| tx.execute("CREATE TABLE IF NOT EXISTS t (x)", []).map(drop)).await.unwrap();
            db.transaction(|tx| tx.execute("INSERT INTO t VALUES (1)", []).map(drop)).await.unwrap();
        }
        assert_eq!(forgotten(), before);
        let other = rusqlite::Connection::open(db.path()).unwrap();
        other.execute("INSERT INTO t VALUES (2)", []).unwrap();
        let told = async || (forgotten() > before).then_some(());
        eventually("relays are told", Duration::from_secs(10), told).await;
        other.execute("INSERT INTO t VALUES (3)", []).unwrap();
        db.transaction(|tx| tx.execute("INSERT INTO t VALUES (4)", []).map(drop)).await.unwrap();
        assert!(forgotten() > before + 1, "the writer finds out by itself, at its next commit");
    }

    /// With a message every 10 ms our own commits wake nobody, unless there may be others' among them.
    #[tokio::test]
    async fn where_others_write_the_log_is_watched_again_sooner() {
        let folder = tempfile::tempdir().unwrap();
        let db = Sqlite::open(folder.path().join("shop.db")).await.unwrap();
        let write = async || db.transaction(|tx| tx.execute("CREATE TABLE IF NOT EXISTS t (x)", [])).await;
        write().await.unwrap();
        let (shared, core) = db.watched();
        let mut seen = Seen::new(shared, core);
        seen.forget_others();
        write().await.unwrap();
        assert_eq!(seen.quiet(), QUIET);
        let other = rusqlite::Connection::open(db.path()).unwrap();
        other.execute("INSERT INTO t VALUES (1)", []).unwrap();
        write().await.unwrap();
        assert_eq!(seen.quiet(), LOOK_BUSY, "the writer has found out at its next commit");
        seen.forget_others();
        write().await.unwrap();
        assert_eq!(seen.quiet(), QUIET);
    }

    /// Whoever is stirred gets up, finds that nothing has changed, and waits on.
    #[tokio::test]
    async fn relays_are_stirred_without_being_told_anything() {
        let folder = tempfile::tempdir().unwrap();
        let db = Sqlite::open(folder.path().join("shop.db")).await.unwrap();
        db.migrate().await.unwrap();
        let seen = *db.state.version.borrow();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut changed = std::pin::pin!(db.changed(seen));
        let mut is_told = || changed.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let woken = || woken.0.load(Ordering::Relaxed);
        assert_eq!((is_told(), woken()), (false, 0));
        db.state.stir();
        assert_eq!((woken(), is_told()), (1, false));
        db.state.wake();
        assert_eq!((woken(), is_told()), (2, true));
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}
