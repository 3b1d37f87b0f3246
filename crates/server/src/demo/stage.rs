//! Directing the demonstration: start, break, heal, drain, count.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use twobox_core::Clock as _;
use twobox_core::system::SystemClock;

use super::Arguments;
use super::audit::{Auditor, Progress};
use super::billing::read_count;
use super::chance::{Chance, fresh_secret};
use super::child::Service;
use super::plan::{Fault, plan};
use super::proxy::Proxy;
use super::report::Outcome;
use crate::Result;

/// What the average fault takes beyond the pause before it, restart included. Orders are placed over the time all
/// faults take.
const FAULT_TAKES: Duration = Duration::from_millis(100);
/// Half of the kills come this much later than the beginning of a request, at most: a request has many moments.
const LINGER_MAX: Duration = Duration::from_millis(4);
/// Somebody who is to be killed in the middle of a request is given this long to begin one.
const REQUEST_WAIT: Duration = Duration::from_secs(5);
/// Services that are not ready, or get no further, for so long never will.
const STILL_MAX: Duration = Duration::from_secs(30);
/// How often the databases are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Orders per second when nothing is killed: as many as go.
const UNLIMITED: u64 = 10_000_000;

/// The two services and what is between them.
pub(super) struct Stage {
    shop_db: PathBuf,
    billing_db: PathBuf,
    duplicates: PathBuf,
    messages: u64,
    kills: u32,
    pause_max: Duration,
    seed: u64,
    secret: String,
    proxy: Proxy,
    bar: ProgressBar,
    kills_shop: u32,
    kills_billing: u32,
    kills_in_flight: u32,
}

struct Cast {
    shop: Service,
    billing: Service,
}

impl Cast {
    /// Fails if one of them has ended without being killed.
    fn check(&mut self) -> Result<()> {
        if self.shop.has_ended()? || self.billing.has_ended()? {
            return Err("a service has ended by itself".into());
        }
        Ok(())
    }
}

impl Stage {
    pub(super) async fn new(folder: &Path, arguments: &Arguments, seed: u64) -> Result<Self> {
        Ok(Self {
            shop_db: folder.join("shop.db"),
            billing_db: folder.join("billing.db"),
            duplicates: folder.join("duplicates"),
            messages: arguments.messages,
            kills: arguments.kills,
            pause_max: Duration::from_millis(arguments.pause_max_ms),
            seed,
            secret: fresh_secret(),
            proxy: Proxy::start().await?,
            bar: bar(arguments)?,
            kills_shop: 0,
            kills_billing: 0,
            kills_in_flight: 0,
        })
    }

    pub(super) async fn play(mut self) -> Result<Outcome> {
        let clock = SystemClock::default();
        let start = clock.monotonic();
        let per_second = self.orders_per_second()?;
        let mut cast =
            Cast { billing: self.start_billing().await?, shop: self.start_shop(per_second).await? };
        let auditor = self.auditor(&mut cast).await?;
        let mut chance = Chance::new(self.seed);
        for fault in plan(self.kills, &mut chance) {
            cast = self.cause(fault, cast, &auditor, &mut chance).await?;
        }
        self.proxy.until_broken(REQUEST_WAIT).await;
        self.proxy.heal();
        if self.kills > 0 {
            // Nothing is left to be spread over the faults.
            cast.shop.stop().await?;
            cast.shop = self.start_shop(UNLIMITED).await?;
        }
        self.drain(&mut cast, &auditor).await?;
        let took = clock.monotonic() - start;
        cast.shop.stop().await?;
        cast.billing.stop().await?;
        self.bar.finish_and_clear();
        let (cuts, answers_lost) = self.proxy.broken();
        Ok(Outcome {
            seed: self.seed,
            audit: auditor.audit()?,
            wanted: self.messages,
            duplicates: File::open(&self.duplicates).map_or(0, |file| read_count(&file)),
            kills_shop: self.kills_shop,
            kills_billing: self.kills_billing,
            kills_wanted: self.kills,
            kills_in_flight: self.kills_in_flight,
            cuts,
            answers_lost,
            took,
        })
    }

    /// As many as let orders flow for as long as there are faults.
    fn orders_per_second(&self) -> Result<u64> {
        if self.kills == 0 {
            return Ok(UNLIMITED);
        }
        let millis = u128::from(self.kills) * 5 / 2 * (FAULT_TAKES + self.pause_max / 2).as_millis();
        Ok(u64::try_from(u128::from(self.messages) * 1000 / millis)?.max(1))
    }

    async fn start_shop(&self, per_second: u64) -> Result<Service> {
        let arguments = [
            "demo-shop".into(),
            format!("--database={}", self.shop_db.display()),
            format!("--billing=http://{}", self.proxy.address),
            format!("--orders={}", self.messages),
            format!("--orders-per-second={per_second}"),
        ];
        Service::start(&arguments, &self.secret, false).await
    }

    async fn start_billing(&self) -> Result<Service> {
        let arguments = [
            "demo-billing".into(),
            format!("--database={}", self.billing_db.display()),
            format!("--duplicates={}", self.duplicates.display()),
        ];
        let billing = Service::start(&arguments, &self.secret, true).await?;
        self.proxy.lead_to(billing.said.parse()?);
        Ok(billing)
    }

    /// The databases can be looked at once both services have made their tables.
    async fn auditor(&self, cast: &mut Cast) -> Result<Auditor> {
        let looking = async {
            loop {
                if let Ok(auditor) = Auditor::new(&self.shop_db, &self.billing_db)
                    && auditor.progress().is_ok()
                {
                    return Ok(auditor);
                }
                cast.check()?;
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        let not_ready = |_| format!("the services have made no tables in {STILL_MAX:?}");
        tokio::time::timeout(STILL_MAX, looking).await.map_err(not_ready)?
    }

    async fn cause(
        &mut self,
        fault: Fault,
        mut cast: Cast,
        auditor: &Auditor,
        chance: &mut Chance,
    ) -> Result<Cast> {
        tokio::time::sleep(chance.time_below(self.pause_max)).await;
        let sent = self.show(auditor)?.settled;
        cast.check()?;
        match fault {
            Fault::Cut => self.proxy.cut_one(),
            Fault::DropAnswer => self.proxy.drop_one(),
            Fault::KillShop => {
                self.aim(sent, chance).await;
                cast.shop.kill().await?;
                self.kills_shop += 1;
                cast.shop = self.start_shop(self.orders_per_second()?).await?;
            }
            Fault::KillBilling => {
                self.aim(sent, chance).await;
                cast.billing.kill().await?;
                self.kills_billing += 1;
                cast.billing = self.start_billing().await?;
            }
        }
        Ok(cast)
    }

    /// Waits for a request, if there will be any, so that the kill hits it: at once, or some time after it has begun. If
    /// it is over by then, the next one is hit.
    async fn aim(&mut self, sent: u64, chance: &mut Chance) {
        let wait = if sent < self.messages { REQUEST_WAIT } else { Duration::ZERO };
        self.proxy.until_in_flight(wait).await;
        if chance.below(2) == 0 {
            tokio::time::sleep(chance.time_below(LINGER_MAX)).await;
            self.proxy.until_in_flight(wait).await;
        }
        self.kills_in_flight += u32::from(self.proxy.in_flight() > 0);
    }

    /// Waits until everything has arrived, for as long as something does. What has not by then is counted as lost.
    async fn drain(&self, cast: &mut Cast, auditor: &Auditor) -> Result<()> {
        let clock = SystemClock::default();
        let (mut last, mut since) = (self.show(auditor)?, clock.monotonic());
        while last.settled < self.messages && clock.monotonic() - since < STILL_MAX {
            cast.check()?;
            tokio::time::sleep(LOOK_EVERY).await;
            let now = self.show(auditor)?;
            if now != last {
                (last, since) = (now, clock.monotonic());
            }
        }
        Ok(())
    }

    /// Shows how far everything is.
    fn show(&self, auditor: &Auditor) -> Result<Progress> {
        let progress = auditor.progress()?;
        let (cuts, answers_lost) = self.proxy.broken();
        self.bar.set_position(progress.invoices.min(self.messages));
        self.bar.set_message(format!(
            "{} orders, {} kills ({} in flight), {} cuts, {} answers lost",
            progress.orders,
            self.kills_shop + self.kills_billing,
            self.kills_in_flight,
            cuts,
            answers_lost
        ));
        Ok(progress)
    }
}

fn bar(arguments: &Arguments) -> Result<ProgressBar> {
    let target = if arguments.json { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let style = ProgressStyle::with_template("{elapsed:>4} {bar:30.green} {pos:>7}/{len} invoices  {msg}")?;
    Ok(ProgressBar::with_draw_target(Some(arguments.messages), target).with_style(style))
}
