//! Copies of one message at the receiver at the same time, through the in-process transport.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shuttle::future::{block_on, yield_now};
use shuttle::thread;
use twobox_core::ports::{
    Answer, Delivery, InboxRecord, InboxStore, InstanceStore, KeyGate, Link, Met, MetOutbox, Transport as _,
    Treatment,
};
use twobox_core::{
    Consumer, Destination, Endpoint, Error, HandlerResult, Message, MessageId, Refusal, Response, Result,
    Source,
};
use twobox_engine::receiver::Route;
use twobox_engine::{InProcess, Receiver, Timer};

use super::explore::{ensure, violated};
use super::place::{Place, message};
use super::time::{Endless, Time, below};

/// Deliveries of the same batch at the same time.
const COPIES: usize = 3;
const IDS: [&str; 2] = ["m0", "m1"];
/// Longer than the receiver works on a request.
const EVER: Duration = Duration::from_secs(60);

pub(super) fn scenario(_: &Place) {
    let time = Time::default();
    let inbox = Inbox { failures: below(3), ..Inbox::default() };
    let way = InProcess::to(receiver(&inbox, time.clone()).unwrap_or_else(|error| violated(error.chain())));
    let messages: Vec<_> = IDS.iter().map(|id| Arc::new(message(&time, id))).collect();
    let copies: Vec<_> = (0..COPIES)
        .map(|copy| {
            let (way, mut batch) = (way.clone(), messages.clone());
            batch.rotate_left(copy % IDS.len());
            thread::spawn(move || (batch.clone(), block_on(way.deliver(&link(), batch, EVER))))
        })
        .collect();
    let mut answers: HashMap<MessageId, Vec<Answer>> = HashMap::new();
    for copy in copies {
        let (batch, answered) = copy.join().unwrap_or_else(|_| violated("a thread panicked"));
        let answered = answered.unwrap_or_else(|error| violated(format!("no answer: {error}")));
        for (message, answer) in batch.iter().zip(answered) {
            answers.entry(message.id.clone()).or_default().push(answer);
        }
    }
    answers.iter().for_each(|(id, answers)| inbox.check(id, answers));
}

fn link() -> Arc<Link> {
    let destination = Destination::new("billing").expect("a legal name");
    Arc::new(Link { source: Source::new("shop").expect("a legal name"), destination, outbox: "a".into() })
}

/// A receiver whose handlers have two halves as often as not.
fn receiver(inbox: &Inbox, time: Time) -> Result<Receiver<Inbox>> {
    // Whoever waits for a message without a limit must be told when it is through.
    let timer: Arc<dyn Timer> = if below(2) == 0 { Arc::new(Endless(time)) } else { Arc::new(time) };
    let preparing = inbox.clone();
    let route = if below(2) == 0 {
        Route::Handler(Handler::Effect)
    } else {
        Route::Prepared(Arc::new(move |message: Arc<Message>| {
            let inbox = preparing.clone();
            Box::pin(async move {
                let _busy = inbox.begin(&message);
                yield_now().await;
                HandlerResult::Ok(Handler::Effect)
            })
        }))
    };
    let builder = Receiver::builder(inbox.clone(), Consumer::new("billing")?, timer);
    Ok(builder.route(Endpoint::new("Pay")?, route)?.build())
}

/// What handles a message.
#[derive(Clone)]
enum Handler {
    Effect,
    Refuse(Refusal),
}

/// An inbox in memory. It notices when a message is being handled twice at a time.
#[derive(Clone, Default)]
struct Inbox {
    /// So many of the first attempts at each message fail.
    failures: u32,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    busy: HashSet<MessageId>,
    attempts: HashMap<MessageId, u32>,
    effects: HashMap<MessageId, u32>,
}

/// A message is being handled until this is dropped.
struct Busy(Inbox, MessageId);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.lock().busy.remove(&self.1);
    }
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, message: &Message) -> Busy {
        let is_alone = self.lock().busy.insert(message.id.clone());
        ensure(is_alone, || format!("{} is being handled twice at a time", message.id));
        Busy(self.clone(), message.id.clone())
    }

    /// Handles a message as a store does: once, and from then on the stored answer.
    async fn handle(&self, delivery: &Delivery<Handler>) -> Answer {
        let id = &delivery.message.id;
        let busy = self.begin(&delivery.message);
        yield_now().await;
        if self.lock().effects.contains_key(id) {
            return Answer::Duplicate(Some(Response::empty()));
        }
        if let Treatment::Handle(Handler::Refuse(refusal)) = &delivery.treatment {
            return Answer::Retry { after: None, error: refusal.error().into() };
        }
        let attempt = {
            let mut state = self.lock();
            let attempts = state.attempts.entry(id.clone()).or_default();
            *attempts += 1;
            *attempts
        };
        yield_now().await;
        drop(busy);
        if attempt <= self.failures {
            return Answer::Retry { after: None, error: "not yet".into() };
        }
        *self.lock().effects.entry(id.clone()).or_default() += 1;
        Answer::Done(Some(Response::empty()))
    }

    /// Looks back at what the copies of one message were told.
    fn check(&self, id: &MessageId, answers: &[Answer]) {
        let state = self.lock();
        let count = |wanted: fn(&Answer) -> bool| answers.iter().filter(|answer| wanted(answer)).count();
        let done = count(|answer| matches!(answer, Answer::Done(_)));
        let stored = count(|answer| matches!(answer, Answer::Duplicate(_)));
        let later = count(|answer| matches!(answer, Answer::InProgress { .. } | Answer::NotReached));
        let failed = count(|answer| matches!(answer, Answer::Retry { .. }));
        let effects = state.effects.get(id).copied().unwrap_or(0);
        let all = || format!("{id} has {effects} effects, its copies were told {answers:?}");
        ensure(effects <= 1 && done == effects as usize, all);
        ensure(stored == 0 || done == 1, all);
        ensure(done + stored + later + failed == COPIES, all);
        // Whoever fails lets the next one try; only those who were told to come again do not.
        ensure(failed <= self.failures as usize, all);
        ensure(done == 1 || failed > 0, all);
    }
}

impl InboxStore for Inbox {
    type Handler = Handler;

    fn refusing(refusal: Refusal) -> Handler {
        Handler::Refuse(refusal)
    }

    fn answering(_: Response) -> Handler {
        Handler::Effect
    }

    async fn process(&self, deliveries: Vec<Delivery<Handler>>, _: Duration) -> Result<Vec<Answer>> {
        let (mut answers, mut gate) = (Vec::new(), KeyGate::default());
        for delivery in deliveries {
            let answer = self.handle(&delivery).await;
            gate.note(&delivery.message, &answer);
            answers.push(answer);
        }
        yield_now().await;
        Ok(answers)
    }

    async fn inbox_record(
        &self,
        _: &Consumer,
        _: &Source,
        _: &MessageId,
    ) -> Result<Option<InboxRecord>, Error> {
        yield_now().await;
        Ok(None)
    }
}

impl InstanceStore for Inbox {
    async fn inbox_instance(&self) -> Result<String> {
        yield_now().await;
        Ok("inbox".into())
    }

    async fn meet_outbox(&self, _: &Consumer, _: &Source, _: &str) -> Result<Met> {
        yield_now().await;
        Ok(Met::Known)
    }

    async fn met_outboxes(&self) -> Result<Vec<MetOutbox>> {
        Ok(Vec::new())
    }
}
