//! What operators did.

use clap::Args;

use super::Common;
use super::list::{self, Extent};
use super::output::{Sheet, text};
use super::text::{from_now, now};
use crate::Result;
use crate::api::{AuditQuery, AuditRow};
use crate::exit::Exit;

/// Options of `twobox audit`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only what this actor did: the name of a token, or cli: and the name of a user.
    #[arg(long)]
    actor: Option<String>,
    /// Only this action, for instance outbox.replay.
    #[arg(long)]
    action: Option<String>,
    /// Only what was done to this subject.
    #[arg(long)]
    subject: Option<String>,
    #[command(flatten)]
    extent: Extent,
    #[command(flatten)]
    common: Common,
}

pub(super) async fn run(arguments: &Arguments) -> Result<Exit> {
    let Arguments { actor, action, subject, extent, common } = arguments;
    let asked = AuditQuery {
        actor: actor.clone(),
        action: action.clone(),
        subject: subject.clone(),
        ..AuditQuery::default()
    };
    let ask = |limit, next| AuditQuery { limit, next, ..asked.clone() };
    list::run(&common.open().await?, "/_rf/audit", extent, common.json, ask, sheet).await
}

fn sheet(rows: &[AuditRow]) -> Sheet {
    let (mut sheet, now) = (Sheet::new(["when", "who", "what", "to", "outcome", "detail"]), now());
    for row in rows {
        let outcome = match row.outcome.as_str() {
            "done" => sheet.good("done"),
            "begun" => sheet.open("begun"),
            other => sheet.bad(other),
        };
        let result = row.result.as_ref().map(|result| format!(" → {result}")).unwrap_or_default();
        let cells = [
            text(&from_now(&row.at, now)),
            text(&row.actor),
            text(&row.action),
            text(&row.subject),
            outcome,
            text(&format!("{}{result}", row.detail)),
        ];
        sheet.row(cells);
    }
    sheet
}
