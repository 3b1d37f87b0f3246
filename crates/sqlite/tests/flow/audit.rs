//! What operators do leaves a trail.

use serde_json::json;
use twobox_core::ports::OpsStore;
use twobox_core::ports::ops::{AuditEntry, AuditFilter, AuditOutcome};
use twobox_core::{Destination, Error, Source};
use twobox_engine::audited;

use crate::world::World;

fn entry() -> AuditEntry {
    let (actor, action, subject) = ("ann".into(), "lane.pause".into(), "shop/billing".into());
    AuditEntry { actor, action, subject, detail: json!({}) }
}

async fn pause(world: &World) -> Result<bool, Error> {
    let (source, destination) = (Source::new("shop")?, Destination::new("billing")?);
    let action = world.db.pause_lane(&source, &destination, "ann", "maintenance");
    audited(&world.db, &entry(), action, |paused| json!({ "paused": paused })).await
}

/// RF-22: what was done, refused or failed is written down as such.
#[tokio::test(start_paused = true)]
async fn rf_22_the_trail_says_what_became_of_an_action() {
    let world = World::new().await;
    assert!(pause(&world).await.unwrap());
    for error in [Error::invalid("no such thing"), Error::new(twobox_core::ErrorKind::Unavailable, "busy")] {
        let failed = audited(&world.db, &entry(), async { Err::<(), _>(error) }, |()| json!({})).await;
        assert!(failed.is_err());
    }
    let trail = world.db.audit_list(&AuditFilter::default(), None, 10).await.unwrap().items;
    let outcomes: Vec<_> = trail.iter().map(|record| record.outcome).collect();
    assert_eq!(outcomes, [AuditOutcome::Failed, AuditOutcome::Refused, AuditOutcome::Done]);
    assert_eq!(trail[2].result, Some(json!({ "paused": true })));
    assert_eq!(trail[1].result, Some(json!({ "error": "no such thing" })));
}

/// RF-22: an action whose row cannot be written does not happen.
#[tokio::test(start_paused = true)]
async fn rf_22_an_action_that_cannot_be_written_down_does_not_happen() {
    let world = World::new().await;
    let broken =
        "CREATE TRIGGER broken BEFORE INSERT ON twobox_audit BEGIN SELECT RAISE(ABORT, 'broken'); END";
    world.query(broken, |_| Ok(())).await;
    assert!(pause(&world).await.is_err());
    assert!(world.db.outbox_stats(0).await.unwrap().lanes.is_empty(), "no lane was made for a pause");
    world.query("DROP TRIGGER broken", |_| Ok(())).await;
    assert!(pause(&world).await.unwrap());
}
