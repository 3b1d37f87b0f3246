//! Crash points: named places at which a test can make the process die.
//!
//! Without the feature `crash-points` a point compiles to nothing. With it, the environment variable
//! `TWOBOX_CRASH_POINT` names a point and, after a colon, which hit of it kills the process: `relay.settle:3`.

/// Marks a place where a test can make the process die.
#[macro_export]
macro_rules! crash_point {
    ($name:literal) => {
        $crate::crash::hit($name)
    };
}

/// The environment variable that names the point and the hit.
pub const VARIABLE: &str = "TWOBOX_CRASH_POINT";

/// Passes a crash point.
#[inline]
pub fn hit(name: &str) {
    #[cfg(feature = "crash-points")]
    armed::hit(name);
    #[cfg(not(feature = "crash-points"))]
    let _ = name;
}

#[cfg(feature = "crash-points")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Armed {
        name: String,
        left: AtomicU64,
    }

    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();

    pub(super) fn hit(name: &str) {
        let armed = ARMED.get_or_init(|| std::env::var(super::VARIABLE).ok().map(|text| parse(&text)));
        let Some(armed) = armed.as_ref().filter(|armed| armed.name == name) else { return };
        if armed.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            die();
        }
    }

    /// Dies of a signal that no fault of a program raises: a panic within a panic aborts, and is not taken for this.
    fn die() -> ! {
        #[cfg(unix)]
        let _: Result<(), _> =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        std::process::abort()
    }

    fn parse(text: &str) -> Armed {
        let (name, nth) = text.rsplit_once(':').unwrap_or((text, "1"));
        Armed { name: name.into(), left: AtomicU64::new(nth.parse().unwrap_or(1)) }
    }
}
