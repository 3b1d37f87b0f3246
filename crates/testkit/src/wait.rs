//! Waiting for something to become true.

use std::time::Duration;

/// Asks again and again until `check` returns a value; gives up after `limit` of the runtime's time, which on a
/// paused runtime passes at once.
///
/// # Panics
/// If the time is up.
pub async fn eventually<T>(what: &str, limit: Duration, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + limit;
    // Short at first, for what is quick; longer later, because a virtual day has many short pauses.
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(value) = check().await {
            return value;
        }
        assert!(tokio::time::Instant::now() < deadline, "{what}: not within {limit:?}");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(250));
    }
}
