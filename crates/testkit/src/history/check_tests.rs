//! Histories written by hand: correct ones, and one for each way of breaking the promise.

use super::*;
use twobox_core::ports::HeadPolicy;

const RULES: Rules = Rules { attempts_max: 3, head_policy: HeadPolicy::Block, forgets: true };

fn at(events: Vec<(&str, Event)>) -> History {
    let history = History::new();
    for (n, (node, event)) in (0_u64..).zip(events) {
        history.push(Duration::from_millis(n), &node.into(), event);
    }
    history
}

fn order(id: &str) -> Order {
    Order { id: id.into(), destination: "billing".into(), ..Order::default() }
}

fn begun(order: Order) -> (&'static str, Event) {
    ("shop", Event::Begun(order))
}

fn row(id: &str, place: i64) -> (&'static str, Event) {
    ("shop", Event::Row { id: id.into(), place })
}

fn effect(id: &str, place: i64) -> (&'static str, Event) {
    ("billing", Event::Effect { id: id.into(), of: id.into(), place })
}

fn stands(id: &str, standing: Standing) -> (&'static str, Event) {
    ("shop", Event::Stands { id: id.into(), of: id.into(), standing })
}

fn dead(id: &str, reason: &str) -> (&'static str, Event) {
    stands(id, Standing::Dead(reason.into()))
}

fn answered(id: &str, reply: Reply) -> (&'static str, Event) {
    ("billing", Event::Answered(id.into(), reply))
}

fn recovered(effects: &[&str], queued: &[&str]) -> Event {
    let owned = |ids: &[&str]| ids.iter().map(ToString::to_string).collect();
    Event::Recovered { effects: owned(effects), queued: owned(queued) }
}

fn work(id: &str, standing: Standing) -> (&'static str, Event) {
    ("billing", Event::Work { id: id.into(), of: id.into(), standing })
}

fn dead_work(id: &str, reason: &str) -> (&'static str, Event) {
    work(id, Standing::Dead(reason.into()))
}

#[test]
fn a_database_that_is_not_sound_is_found() {
    let events = vec![("shop", Event::Unsound("a lane counts another number".into()))];
    assert_eq!(broken(events, &RULES), [Clause::Sound]);
}

/// The clauses that are broken.
fn broken(events: Vec<(&str, Event)>, rules: &Rules) -> Vec<Clause> {
    match check(&at(events), rules) {
        Ok(_) => Vec::new(),
        Err(findings) => findings.iter().map(|finding| finding.clause).collect(),
    }
}

/// A message that went well.
fn well(id: &str, place: i64) -> Vec<(&'static str, Event)> {
    vec![
        begun(order(id)),
        ("shop", Event::Enqueued(id.into())),
        ("shop", Event::Sent(id.into())),
        answered(id, Reply::Done),
        ("shop", Event::Acknowledged(id.into())),
        row(id, place),
        effect(id, place),
        stands(id, Standing::Sent),
    ]
}

#[test]
fn a_run_that_went_well_is_counted() {
    let mut events = [well("a", 1), well("b", 2)].concat();
    events.push(answered("b", Reply::Duplicate));
    let summary = check(&at(events), &RULES).unwrap();
    let expected = Summary { committed: 2, effects: 2, acknowledged: 2, duplicates: 1, dead: 0 };
    assert_eq!(summary, expected);
}

#[test]
fn the_text_is_one_line_per_event() {
    let mut keyed = order("a");
    keyed.key = Some("k".into());
    keyed.mortal = true;
    let history = at(vec![begun(keyed), answered("a", Reply::Done)]);
    assert_eq!(
        history.text(),
        "           0 shop begun a to billing key k mortal\n        1000 billing answered a done\n"
    );
}

#[test]
fn s2_a_loss_is_found() {
    assert_eq!(broken(vec![begun(order("a")), row("a", 1)], &RULES), [Clause::Lost]);
    let sent = vec![begun(order("a")), row("a", 1), stands("a", Standing::Sent)];
    assert_eq!(broken(sent, &RULES), [Clause::Lost], "sent, but no effect");
    let told = vec![begun(order("a")), ("shop", Event::Enqueued("a".into()))];
    assert_eq!(broken(told, &RULES), [Clause::Lost], "the author's row is gone");
    let rejected = vec![("billing", Event::Rejected("a".into())), answered("a", Reply::Rejected)];
    let dead = [vec![begun(order("a")), row("a", 1), dead("a", "rejected")], rejected].concat();
    assert_eq!(broken(dead, &RULES), [], "dead with a reason is not lost");
    let purged = vec![begun(order("a")), row("a", 1), ("shop", Event::Purged("a".into()))];
    assert_eq!(broken(purged, &RULES), [], "somebody did not want it");
    let unknown = vec![begun(order("a")), ("shop", Event::Unknown("a".into()))];
    assert_eq!(broken(unknown, &RULES), [], "it was not committed");
}

#[test]
fn s3_an_effect_that_happens_twice_is_found() {
    let events = [well("a", 1), vec![effect("a", 2)]].concat();
    assert_eq!(broken(events, &RULES), [Clause::Twice]);
}

#[test]
fn s1_an_effect_without_a_commit_is_found() {
    assert_eq!(broken(vec![effect("a", 1)], &RULES), [Clause::Unfounded], "nobody knows it");
    let uncommitted = vec![begun(order("a")), effect("a", 1)];
    assert_eq!(broken(uncommitted, &RULES), [Clause::Unfounded]);
    let refused = [well("a", 1), vec![("shop", Event::Refused("a".into()))]].concat();
    assert_eq!(broken(refused, &RULES), [Clause::Unfounded]);
    let mut elsewhere = well("a", 1);
    elsewhere[6].0 = "shop";
    assert_eq!(broken(elsewhere, &RULES), [Clause::Unfounded]);
}

fn keyed(id: &str) -> Order {
    Order { key: Some("k".into()), ..order(id) }
}

fn in_wrong_order() -> Vec<(&'static str, Event)> {
    let rows = vec![row("a", 1), row("b", 2), effect("b", 1), effect("a", 2)];
    [vec![begun(keyed("a")), begun(keyed("b"))], rows].concat()
}

#[test]
fn l4_a_message_that_overtakes_another_of_its_key_is_found() {
    assert_eq!(broken(in_wrong_order(), &RULES), [Clause::Order]);
    let mut other_key = in_wrong_order();
    other_key[1] = begun(Order { key: Some("other".into()), ..order("b") });
    assert_eq!(broken(other_key, &RULES), []);
}

#[test]
fn l5_a_scheduled_message_is_no_part_of_its_key() {
    let mut events = in_wrong_order();
    events[0] = begun(Order { scheduled: true, ..keyed("a") });
    assert_eq!(broken(events, &RULES), []);
}

#[test]
fn s12_a_dead_message_may_be_late_only_if_its_key_went_on_without_it() {
    let replayed = [in_wrong_order(), vec![("shop", Event::Replayed("a".into()))]].concat();
    assert_eq!(broken(replayed.clone(), &RULES), [Clause::Order], "the key waits");
    let purged = [in_wrong_order(), vec![("shop", Event::Purged("a".into()))]].concat();
    assert_eq!(broken(purged, &RULES), [], "the key went on without it, and then came a copy");
    let released = [replayed.clone(), vec![("shop", Event::Released("k".into()))]].concat();
    assert_eq!(broken(released, &RULES), []);
    for head_policy in [HeadPolicy::StepOver, HeadPolicy::FailKey] {
        assert_eq!(broken(replayed.clone(), &Rules { head_policy, ..RULES }), []);
        assert_eq!(
            broken(in_wrong_order(), &Rules { head_policy, ..RULES }),
            [Clause::Order],
            "it never died"
        );
    }
}

#[test]
fn l3_what_is_still_open_at_the_end_is_found() {
    let mut events = well("a", 1);
    events[7] = stands("a", Standing::Open);
    assert_eq!(broken(events, &RULES), [Clause::Open]);
}

#[test]
fn s2_an_acknowledgement_without_an_effect_is_found() {
    let mut events = well("a", 1);
    events[6] = dead("a", "too-old");
    events.push(answered("a", Reply::TooOld));
    assert_eq!(broken(events, &RULES), [Clause::Hollow], "it is dead, so not lost, but it was acknowledged");
    let mut forgotten = well("a", 1);
    forgotten.insert(5, ("billing", recovered(&[], &[])));
    assert_eq!(broken(forgotten, &RULES), [Clause::Hollow], "done again later, but it was gone in between");
    let mut other = well("a", 1);
    other.insert(5, ("shop", recovered(&[], &[])));
    other.insert(2, ("billing", recovered(&[], &[])));
    assert_eq!(broken(other, &RULES), []);
}

#[test]
fn l8_two_messages_of_one_once_key_are_found() {
    let once = |id: &str| begun(Order { once: Some("o".into()), ..order(id) });
    let mut events = [well("a", 1), well("b", 2)].concat();
    (events[0], events[8]) = (once("a"), once("b"));
    assert_eq!(broken(events.clone(), &RULES), [Clause::Once]);
    events.truncate(9);
    assert_eq!(broken(events, &RULES), []);
}

#[test]
fn l3_a_death_without_a_cause_is_found() {
    let dies_by = |rules: &Rules, reason: &str, extra: Vec<(&'static str, Event)>| {
        let events = vec![begun(order("a")), row("a", 1), dead("a", reason)];
        broken([events, extra].concat(), rules)
    };
    let dies = |reason: &str, extra| dies_by(&RULES, reason, extra);
    for reason in
        ["attempts-exhausted", "rejected", "too-old", "conflict", "key-failed", "expired", "no-route"]
    {
        assert_eq!(dies(reason, Vec::new()), [Clause::Cause], "{reason}");
    }
    for (reason, reply) in [("rejected", Reply::Rejected), ("conflict", Reply::Conflict)] {
        let said = vec![answered("a", reply)];
        assert_eq!(dies(reason, said), [Clause::Cause], "the receiver says so, without a reason: {reason}");
    }
    let forgotten = || vec![answered("a", Reply::TooOld)];
    assert_eq!(dies("too-old", forgotten()), []);
    let remembers = Rules { forgets: false, ..RULES };
    assert_eq!(dies_by(&remembers, "too-old", forgotten()), [Clause::Cause], "nothing was forgotten");
    let sent = ("shop", Event::Sent("a".into()));
    assert_eq!(
        dies("attempts-exhausted", vec![sent.clone(); 2]),
        [Clause::Cause],
        "an outage charges nobody"
    );
    assert_eq!(dies("attempts-exhausted", vec![sent; 3]), []);
    let mortal = vec![begun(Order { mortal: true, ..order("a") }), row("a", 1), dead("a", "expired")];
    assert_eq!(broken(mortal, &RULES), []);
}

#[test]
fn l10_a_new_id_needs_an_operator() {
    let again = ("billing", Event::Effect { id: "new".into(), of: "a".into(), place: 2 });
    let events = [well("a", 1), vec![again]].concat();
    assert_eq!(broken(events.clone(), &RULES), [Clause::Unfounded, Clause::Twice]);
    let replayed = [events, vec![("shop", Event::ReplayedAsNew("a".into()))]].concat();
    assert_eq!(broken(replayed, &RULES), []);
}

#[test]
fn rf_08_what_a_handler_enqueues_is_committed_with_its_effect() {
    let child = Order { parent: Some("a".into()), destination: "shop".into(), ..order("f-a") };
    let follow = ("billing", Event::Begun(child));
    let its_effect = ("shop", Event::Effect { id: "f-a".into(), of: "f-a".into(), place: 1 });
    let whole = [well("a", 1), vec![follow.clone(), its_effect.clone()]].concat();
    assert_eq!(broken(whole, &RULES), []);
    assert_eq!(broken([well("a", 1), vec![follow.clone()]].concat(), &RULES), [Clause::Lost]);
    assert_eq!(broken(vec![begun(order("a")), follow, its_effect], &RULES), [Clause::Unfounded]);
}

/// A message that was stored, acknowledged and never handled.
fn queued(id: &str, end: (&'static str, Event)) -> Vec<(&'static str, Event)> {
    let mut events = well(id, 1);
    events[6] = end;
    events
}

#[test]
fn adr_04_what_is_queued_survives_until_it_has_its_effect() {
    let comes_up = |found: Event| {
        let mut events = well("a", 1);
        events.insert(5, ("billing", found));
        broken(events, &RULES)
    };
    assert_eq!(comes_up(recovered(&[], &["a"])), [], "it is queued");
    assert_eq!(comes_up(recovered(&["a"], &[])), [], "it is handled");
    assert_eq!(comes_up(recovered(&["b"], &["c"])), [Clause::Hollow]);
    assert_eq!(broken(queued("a", row("a", 1)), &RULES), [Clause::Lost, Clause::Hollow], "it is gone");
    let both = [well("a", 1), vec![dead_work("a", "attempts-exhausted")]].concat();
    assert_eq!(broken(both, &RULES), [Clause::Twice], "a replay would repeat it");
}

#[test]
fn l3_what_is_still_queued_at_the_end_is_found() {
    assert_eq!(broken(queued("a", work("a", Standing::Open)), &RULES), [Clause::Lost, Clause::Open]);
}

#[test]
fn ibx_060_a_dead_letter_of_the_inbox_is_not_lost_and_has_a_cause() {
    let dies = |reason: &str| queued("a", dead_work("a", reason));
    assert_eq!(broken(dies("attempts-exhausted"), &RULES), [], "a crash is an attempt, too");
    for reason in ["rejected", "expired", "key-failed", "undecodable"] {
        assert_eq!(broken(dies(reason), &RULES), [Clause::Cause], "{reason}");
    }
    let rejected = [dies("rejected"), vec![("billing", Event::Rejected("a".into()))]].concat();
    assert_eq!(broken(rejected, &RULES), []);
    let mut mortal = dies("expired");
    mortal[0] = begun(Order { mortal: true, ..order("a") });
    assert_eq!(broken(mortal, &RULES), []);
    assert_eq!(broken(dies("key-failed"), &Rules { head_policy: HeadPolicy::FailKey, ..RULES }), []);
}

#[test]
fn s12_a_message_that_died_in_the_queue_may_be_late_only_if_its_key_went_on_without_it() {
    let replayed = [in_wrong_order(), vec![("billing", Event::WorkReplayed("a".into()))]].concat();
    assert_eq!(broken(replayed.clone(), &RULES), [Clause::Order], "the key waits");
    let release = |node| [replayed.clone(), vec![(node, Event::WorkReleased("k".into()))]].concat();
    assert_eq!(broken(release("billing"), &RULES), []);
    assert_eq!(broken(release("shop"), &RULES), [Clause::Order], "the key of another inbox");
    assert_eq!(broken(replayed.clone(), &Rules { head_policy: HeadPolicy::StepOver, ..RULES }), []);
}
