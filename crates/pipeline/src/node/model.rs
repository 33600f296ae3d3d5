//! Loom models of callers, a connection and a closing client: all interleavings that loom finds.
//!
//! A caller that is never woken shows as a deadlock: loom knows that no thread is left to wake it.

use std::future::poll_fn;
use std::task::{Context, Poll, Wake, Waker};

use loom::future::block_on;
use loom::thread;

use super::*;
use crate::batch::Batch;
use crate::call::{Call, CallGroup, DeadlinePassed, Unanswered, WriteStatus};
use crate::client::Route;
use crate::outcome::{Outcome, Unknown};
use crate::wire::Reply;

/// Maximum number of forced thread switches in one run. Three find every planted bug so far, within
/// seconds.
const MAX_FORCED_SWITCHES: usize = 3;

/// Runs `model` in all interleavings, inside a runtime that polls no task: spawned tasks never run.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _inside = runtime.enter();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(MAX_FORCED_SWITCHES);
    builder.check(model);
}

fn node() -> Arc<Node> {
    let address: Address = "127.0.0.1:1".parse().unwrap();
    let context = ClientContext::new(Config::single(address.clone())).unwrap();
    Node::new(address, &context)
}

fn call(node: &Arc<Node>) -> Arc<Call> {
    let mut batch = Batch::new();
    batch.unit().command("PING", &[]);
    let Route { groups, .. } = Route::split(&batch, |_| Some(node));
    let deadline = tokio::time::Instant::now() + Duration::from_secs(3600);
    Call::new(batch, groups, deadline)
}

fn group(call: &Arc<Call>) -> CallGroup {
    CallGroup::new(call, 0)
}

fn pong() -> Outcome {
    Outcome::Reply(Reply::Simple("PONG".into()))
}

fn lost() -> Outcome {
    Outcome::Unknown(Unknown::ConnectionLost {
        node: "n".into(),
        reason: "reset".into(),
    })
}

fn unanswered(_group: usize, why: Unanswered) -> Outcome {
    match why {
        Unanswered::Dropped(_) => lost(),
        Unanswered::NotDone(WriteStatus::NotWritten) => Outcome::NotSent(NotSent::Skipped),
        Unanswered::NotDone(WriteStatus::MaybeWritten) => {
            Outcome::Unknown(Unknown::DeadlineExceeded { node: "n".into() })
        }
    }
}

/// Waits for the call and returns the outcome of its command.
fn wait(call: &Call) -> Outcome {
    let _ = block_on(call.wait_until_done(1));
    call.leave(unanswered).remove(0)
}

/// Runs turns of the connection until it has a group.
async fn wait_for_groups(node: &Arc<Node>, link: LinkId) -> Result<Vec<CallGroup>, CloseReason> {
    poll_fn(|cx| {
        let mut groups = Vec::new();
        turn(node, link, cx.waker(), &mut groups)?;
        if groups.is_empty() {
            Poll::Pending
        } else {
            Poll::Ready(Ok(groups))
        }
    })
    .await
}

fn turn(
    node: &Arc<Node>,
    link: LinkId,
    waker: &Waker,
    groups: &mut Vec<CallGroup>,
) -> Result<(), CloseReason> {
    let turn = LinkReport {
        link,
        released: Load::default(),
        oldest: None,
        reply_time: Duration::ZERO,
        waker,
    };
    node.take_groups(&turn, groups)
}

#[test]
fn a_caller_is_woken_whenever_its_reply_comes() {
    check(|| {
        let call = call(&node());
        let group = group(&call);
        let connection = thread::spawn(move || {
            assert!(group.start());
            group.finish(vec![pong()]);
        });
        assert_eq!(wait(&call), pong());
        connection.join().unwrap();
    });
}

#[test]
fn a_caller_that_leaves_knows_whether_its_command_is_written() {
    check(|| {
        let call = call(&node());
        let group = group(&call);
        let connection = thread::spawn(move || {
            let started = group.start();
            if started {
                group.finish(vec![pong()]);
            }
            started
        });
        let outcome = call.leave(unanswered).remove(0);
        let started = connection.join().unwrap();
        match outcome {
            Outcome::NotSent(_) => assert!(!started, "not sent, and written all the same"),
            Outcome::Unknown(Unknown::DeadlineExceeded { .. }) | Outcome::Reply(_) => {
                assert!(started)
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_deadline_ends_the_wait_and_a_reply_before_it_counts() {
    check(|| {
        let call = call(&node());
        let group = group(&call);
        let connection = thread::spawn(move || {
            assert!(group.start());
            group.expire();
            group.finish(vec![pong()]);
        });
        let in_time = block_on(call.wait_until_done(1));
        let outcome = call.leave(unanswered).remove(0);
        match in_time {
            Ok(()) => assert_eq!(outcome, pong()),
            Err(DeadlinePassed) => {
                let late = matches!(outcome, Outcome::Unknown(Unknown::DeadlineExceeded { .. }));
                assert!(late || outcome == pong(), "{outcome:?}");
            }
        }
        connection.join().unwrap();
    });
}

#[test]
fn a_deadline_ends_the_wait_for_a_reply_that_never_comes() {
    check(|| {
        let call = call(&node());
        let group = group(&call);
        let connection = thread::spawn(move || {
            assert!(group.start());
            group.expire();
            // A dropped group would end the call, so it is kept.
            group
        });
        assert_eq!(block_on(call.wait_until_done(1)), Err(DeadlinePassed));
        connection.join().unwrap();
    });
}

#[test]
fn a_group_that_is_dropped_ends_the_wait() {
    check(|| {
        let call = call(&node());
        let group = group(&call);
        let connection = thread::spawn(move || {
            assert!(group.start());
            drop(group);
        });
        assert_eq!(wait(&call), lost());
        connection.join().unwrap();
    });
}

#[test]
fn a_caller_without_a_connection_sets_its_own_timer() {
    check(|| {
        let call = call(&node());
        let group = group(&call);
        let connection = thread::spawn(move || {
            group.leave_timer_to_caller();
            group
        });
        // The caller is polled again when the group starts to wait, whichever comes first.
        let polls = Arc::new(Polls::default());
        let waker = Waker::from(polls.clone());
        let mut until = Box::pin(call.wait_until_done(1));
        assert!(
            until
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        let _group = connection.join().unwrap();
        let woken = polls.0.load(std::sync::atomic::Ordering::SeqCst);
        assert!(
            woken > 0 || call.needs_own_timer(),
            "no timer watches the deadline"
        );
    });
}

/// Counts wakes.
#[derive(Default)]
struct Polls(std::sync::atomic::AtomicUsize);

impl Wake for Polls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

#[test]
fn what_is_submitted_reaches_an_idle_connection() {
    check(|| {
        let node = node();
        let link = node.state().pool.open();
        let connection = {
            let node = node.clone();
            thread::spawn(move || {
                for group in block_on(wait_for_groups(&node, link)).unwrap() {
                    assert!(group.start());
                    group.finish(vec![pong()]);
                }
            })
        };
        let call = call(&node);
        node.submit([group(&call)].into_iter(), call.groups[0].load);
        assert_eq!(wait(&call), pong());
        connection.join().unwrap();
    });
}

#[test]
fn a_full_queue_a_broken_connection_and_a_closed_client_leave_no_caller_waiting() {
    check(|| {
        let node = node();
        let link = node.state().pool.open();
        // The state prevents that the model spawns a connect: its threads have small stacks.
        node.state().connect = ConnectState::Connecting;
        let connection = {
            let node = node.clone();
            thread::spawn(move || {
                // The connection breaks after one turn: taken groups are lost, others are queued
                // again.
                let mut groups = Vec::new();
                turn(&node, link, Waker::noop(), &mut groups).unwrap();
                for group in groups {
                    assert!(group.start());
                    group.finish(vec![lost()]);
                }
                node.detach(link, &"reset".into());
            })
        };
        let closer = {
            let node = node.clone();
            thread::spawn(move || node.close())
        };
        let call = call(&node);
        node.submit([group(&call)].into_iter(), call.groups[0].load);
        let outcome = wait(&call);
        assert!(
            outcome == lost() || outcome == Outcome::NotSent(NotSent::Closed),
            "{outcome:?}"
        );
        connection.join().unwrap();
        closer.join().unwrap();
    });
}
