//! A future whose parts wake each other.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// So often it is polled in a row; then others have their turn.
const TURNS_MAX: usize = 8;

/// Polls a future again at once when it has woken itself: a connection and whoever reads from it, or a loop that polls
/// what it has started.
///
/// A runtime takes a task that wakes itself for one that makes way for others: it puts it at the end of the line, and
/// wakes a thread that might take it. Both take longer than what there is to do.
pub struct AtOnce<F> {
    future: F,
    bell: Arc<Bell>,
    waker: Waker,
}

/// Nobody polls: whoever rings wakes the task.
const RESTING: u8 = 0;
/// The task polls, and looks here when it is done.
const POLLED: u8 = 1;
/// It rang meanwhile.
const RUNG: u8 = 2;

struct Bell {
    state: AtomicU8,
    task: Mutex<Waker>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let ring = |state| (state != RESTING).then_some(RUNG);
        if self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, ring).is_err() {
            // Not while it is locked: whoever is woken may ring in turn.
            let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
            task.wake();
        }
    }
}

impl<F: Future + Unpin> AtOnce<F> {
    /// Runs this future.
    pub fn new(future: F) -> Self {
        let (state, task) = (AtomicU8::new(RESTING), Mutex::new(Waker::noop().clone()));
        let bell = Arc::new(Bell { state, task });
        Self { future, waker: Waker::from(Arc::clone(&bell)), bell }
    }
}

impl<F: Future + Unpin> Future for AtOnce<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { future, bell, waker } = &mut *self;
        bell.task.lock().unwrap_or_else(PoisonError::into_inner).clone_from(cx.waker());
        for _ in 0..TURNS_MAX {
            // Exchanged, not stored: what somebody did before he rang must be seen by the poll.
            bell.state.swap(POLLED, Ordering::AcqRel);
            if let Poll::Ready(output) = Pin::new(&mut *future).poll(&mut Context::from_waker(waker)) {
                return Poll::Ready(output);
            }
            let rests = bell.state.compare_exchange(POLLED, RESTING, Ordering::AcqRel, Ordering::Acquire);
            if rests.is_ok() {
                return Poll::Pending;
            }
        }
        bell.state.swap(RESTING, Ordering::AcqRel);
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<F> fmt::Debug for AtOnce<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtOnce").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// A task that is only counted.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Polls a future once; says whether it is done, how often it was polled in all, and how often its task was woken.
    struct Bench<F> {
        future: AtOnce<F>,
        woken: Arc<Woken>,
        polled: Arc<AtomicUsize>,
    }

    impl<F: Future<Output = ()> + Unpin> Bench<F> {
        fn poll(&mut self) -> (bool, usize, usize) {
            let waker = Waker::from(Arc::clone(&self.woken));
            let done = Pin::new(&mut self.future).poll(&mut Context::from_waker(&waker)).is_ready();
            (done, self.polled.load(Ordering::SeqCst), self.woken.0.load(Ordering::SeqCst))
        }
    }

    /// A future that wakes itself in its first `rings` polls, and is done after `until`.
    fn bench(rings: usize, until: usize) -> Bench<impl Future<Output = ()> + Unpin> {
        let polled = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&polled);
        let future = AtOnce::new(poll_fn(move |cx| {
            let n = counted.fetch_add(1, Ordering::SeqCst);
            if n < rings {
                cx.waker().wake_by_ref();
            }
            if n < until { Poll::Pending } else { Poll::Ready(()) }
        }));
        Bench { future, woken: Arc::default(), polled }
    }

    #[test]
    fn what_wakes_itself_is_polled_again_and_its_task_is_not_woken() {
        assert_eq!(bench(3, 3).poll(), (true, 4, 0));
        let mut bench = bench(3, 9);
        assert_eq!(bench.poll(), (false, 4, 0), "nobody has woken it since");
        assert_eq!(bench.poll(), (false, 5, 0));
    }

    #[test]
    fn what_wakes_itself_again_and_again_makes_way_for_others() {
        let mut bench = bench(usize::MAX, usize::MAX);
        assert_eq!(bench.poll(), (false, TURNS_MAX, 1));
        assert_eq!(bench.poll(), (false, 2 * TURNS_MAX, 2));
    }

    #[test]
    fn whoever_wakes_it_while_it_rests_wakes_its_task() {
        let mut bench = bench(0, 1);
        assert_eq!(bench.poll(), (false, 1, 0));
        bench.future.waker.wake_by_ref();
        assert_eq!(bench.woken.0.load(Ordering::SeqCst), 1);
        assert_eq!(bench.poll(), (true, 2, 1));
    }

    /// Two tasks on two threads that wait for each other, so often that a wake-up that is lost would not go unnoticed.
    #[test]
    fn no_wake_up_is_lost_between_threads() {
        const ROUNDS: usize = 20_000;
        let turn = Arc::new(Turn::default());
        let (done, over) = mpsc::channel();
        for me in 0..2 {
            let (turn, done) = (Arc::clone(&turn), done.clone());
            thread::spawn(move || {
                let mut round = me;
                block_on(AtOnce::new(poll_fn(|cx| {
                    while round < ROUNDS {
                        if !turn.is(round, cx.waker()) {
                            // Sometimes it is woken before it has rested, sometimes afterwards.
                            (0..round % 512).for_each(|_| std::hint::spin_loop());
                            return Poll::Pending;
                        }
                        turn.next();
                        round += 2;
                    }
                    Poll::Ready(())
                })));
                done.send(me).unwrap();
            });
        }
        for _ in 0..2 {
            over.recv_timeout(std::time::Duration::from_secs(300)).expect("somebody waits for ever");
        }
    }

    /// Whose turn it is, and who waits for his.
    #[derive(Default)]
    struct Turn(Mutex<(usize, Option<Waker>)>);

    impl Turn {
        fn is(&self, round: usize, waker: &Waker) -> bool {
            let mut turn = self.0.lock().unwrap();
            if turn.0 != round {
                turn.1 = Some(waker.clone());
            }
            turn.0 == round
        }

        fn next(&self) {
            let mut turn = self.0.lock().unwrap();
            turn.0 += 1;
            let waiting = turn.1.take();
            drop(turn);
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    fn block_on(mut future: impl Future<Output = ()> + Unpin) {
        struct Thread(thread::Thread);
        impl Wake for Thread {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Thread(thread::current())));
        while Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending() {
            thread::park();
        }
    }
}
