//! What an open database with a running relay costs while nothing happens.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::Result;
use crate::lab::{Lab, timed};
use crate::report::{Figure, Target, Unit};
use crate::sink::Draining;
use crate::store::Store;

/// After work, the last lazy sync and the safety nets come to rest.
const SETTLE: Duration = Duration::from_secs(2);
const MESSAGES: u64 = 1_000;

/// The processor time of this process as a part of the time that passed.
pub(crate) async fn measure(lab: &mut Lab) -> Result<Figure> {
    eprintln!("idle: {:?} ...", lab.plan.idle);
    let store = Store::create(&lab.new_folder()?).await?;
    store.fill(MESSAGES).await?;
    let draining = Draining::start(&store, MESSAGES)?;
    draining.complete().await?;
    tokio::time::sleep(SETTLE).await;
    let before = processor_time();
    let ((), time) = timed(&lab.clock, async {
        tokio::time::sleep(lab.plan.idle).await;
        Ok(())
    })
    .await?;
    let used = processor_time().saturating_sub(before);
    draining.stop().await?;
    store.check_sent(MESSAGES).await?;
    Ok(Figure::new("idle, processor", 100.0 * used.as_secs_f64() / time.as_secs_f64(), Unit::Percent)
        .target(Target::Below(1.0))
        .detail(format!("{used:.1?} in {time:.1?}")))
}

/// User and system time of all threads so far, finer than the ticks of `/proc/self/stat`.
pub(crate) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default())
}
