//! Tests of the turns of calls, bodies and conversions.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;

pub(crate) fn merchant(number: u128) -> MerchantId {
    MerchantId::new(ulid::Ulid::from_parts(1, number))
}

/// Passes pieces for ever, each as long as a turn, and counts them.
async fn busy(mut turn: Turn, passed: Arc<AtomicUsize>) {
    turn.passed(FREE.bytes);
    loop {
        poll_fn(|cx| turn.poll(cx)).await;
        turn.passed(TURN.bytes);
        passed.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn between_two_steps_of_another_task_a_merchant_passes_a_few_pieces_however_many_bodies_it_has() {
    const STEPS: usize = 100;
    for bodies in [1, 10, 200] {
        let (turns, passed) = (Turns::default(), Arc::new(AtomicUsize::new(0)));
        let tasks: Vec<_> = (0..bodies)
            .map(|_| tokio::spawn(busy(turns.body_of(merchant(1)), Arc::clone(&passed))))
            .collect();
        while passed.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        let before = passed.load(Ordering::Relaxed);
        for _ in 0..STEPS {
            tokio::task::yield_now().await;
        }
        let pieces = passed.load(Ordering::Relaxed) - before;
        assert!((STEPS / 4..=STEPS * AT_ONCE * 2).contains(&pieces), "{bodies} bodies: {pieces} pieces");
        for task in tasks {
            task.abort();
        }
    }
}

fn is_ready(turn: &mut Turn) -> bool {
    turn.poll(&mut Context::from_waker(std::task::Waker::noop())).is_ready()
}

#[tokio::test]
async fn between_two_steps_of_another_task_a_few_calls_of_a_merchant_begin_however_many_are_ready() {
    const CALLS: usize = 1_000;
    let (turns, begun) = (Turns::default(), Arc::new(AtomicUsize::new(0)));
    for _ in 0..CALLS {
        let (turns, begun) = (turns.clone(), Arc::clone(&begun));
        tokio::spawn(async move {
            // A short call is over at once.
            turns.body_of(merchant(1)).step().await;
            begun.fetch_add(1, Ordering::Relaxed);
        });
    }
    let other = turns.body_of(merchant(2));
    let mut before = 0;
    while before < CALLS {
        other.step().await;
        tokio::task::yield_now().await;
        let now = begun.load(Ordering::Relaxed);
        assert!(now - before <= STEPS_AT_ONCE * 4, "{} calls began at once", now - before);
        before = now;
    }
}

#[tokio::test]
async fn the_answers_of_a_merchant_that_are_stored_at_once_have_a_quarter_of_a_mebibyte() {
    use futures_util::FutureExt as _;

    const HALF: usize = STORED_AT_ONCE / 2;
    let turns = Turns::default();
    let first = turns.of_answer(merchant(1), HALF).await;
    let _second = turns.of_answer(merchant(1), HALF).await;
    let mut waits = Box::pin(turns.of_answer(merchant(1), SHORT_ANSWER + 1));
    assert!(waits.as_mut().now_or_never().is_none());
    assert!(turns.of_answer(merchant(1), SHORT_ANSWER).await.is_none(), "a short one needs no turn");
    assert!(
        turns.of_answer(merchant(2), STORED_AT_ONCE).await.is_some(),
        "another merchant has turns of its own"
    );
    drop(first);
    assert!(waits.await.is_some());
    assert!(turns.of_answer(merchant(3), usize::MAX).await.is_some(), "a longer one has all of them");
    assert!(turns.lock().keys().eq([&merchant(1)]), "nothing is kept of the others");
}

/// Answers of this merchant, whose turn is over at once. Each task ends when its answer may be stored, and notes its number
/// in the list.
async fn store_all(turns: &Turns, lengths: Vec<usize>) -> (Vec<JoinHandle<()>>, Arc<Mutex<Vec<usize>>>) {
    let (mut tasks, stored) = (Vec::new(), Arc::new(Mutex::new(Vec::new())));
    for (number, bytes) in lengths.into_iter().enumerate() {
        let (turns, stored) = (turns.clone(), Arc::clone(&stored));
        tasks.push(tokio::spawn(async move {
            let turn = turns.of_answer(merchant(1), bytes).await;
            stored.lock().unwrap().push(number);
            drop(turn);
        }));
        tokio::task::yield_now().await;
    }
    (tasks, stored)
}

#[tokio::test(start_paused = true)]
async fn answers_beyond_the_rate_are_stored_in_the_order_in_which_they_came_and_keep_no_others_waiting() {
    const ANSWERS: usize = 100;
    let rate = StoredRate::new((1 << 20).try_into().unwrap(), CancellationToken::new());
    let (turns, start) = (Turns::new(Some(rate)), Instant::now());
    let lengths = [STORED_AT_ONCE, 5 * 1024].into_iter().cycle().take(ANSWERS).collect();
    let (tasks, stored) = store_all(&turns, lengths).await;
    let at_once = stored.lock().unwrap().len();
    assert_eq!(at_once, 6, "a mebibyte is stored at once");
    assert!(turns.of_answer(merchant(1), SHORT_ANSWER).await.is_none());
    assert!(turns.of_answer(merchant(2), STORED_AT_ONCE).await.is_some());
    assert_eq!(start.elapsed(), Duration::ZERO, "neither waits");
    futures_util::future::join_all(tasks).await;
    // All but the first mebibyte, at a mebibyte a second.
    let took = start.elapsed().as_millis();
    assert!((11_700..=11_900).contains(&took), "{took}");
    assert!(stored.lock().unwrap().iter().copied().eq(0..ANSWERS), "{stored:?}");
    assert!(turns.lock().is_empty(), "nothing is kept");
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_stops_stores_what_waits_for_the_rate_at_once_and_in_turns() {
    let stop = CancellationToken::new();
    let rate = StoredRate::new((64 << 10).try_into().unwrap(), stop.clone());
    let turns = Turns::new(Some(rate));
    let (tasks, stored) = store_all(&turns, vec![STORED_AT_ONCE; 20]).await;
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(stored.lock().unwrap().len(), 3, "one at once, and one in four seconds");
    let stopped = Instant::now();
    stop.cancel();
    futures_util::future::join_all(tasks).await;
    assert_eq!(stopped.elapsed(), Duration::ZERO);
    assert!(stored.lock().unwrap().iter().copied().eq(0..20), "{stored:?}");
    let _turn = turns.of_answer(merchant(1), STORED_AT_ONCE).await;
    let next = tokio::time::timeout(Duration::from_secs(1), turns.of_answer(merchant(1), STORED_AT_ONCE));
    assert!(next.await.is_err(), "the turns are kept");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_given_up_while_it_waits_for_the_rate_leaves_its_turn_to_the_next_one() {
    let rate = StoredRate::new((64 << 10).try_into().unwrap(), CancellationToken::new());
    let turns = Turns::new(Some(rate));
    let (tasks, stored) = store_all(&turns, vec![STORED_AT_ONCE; 3]).await;
    tasks[1].abort();
    for task in tasks {
        let _ = task.await;
    }
    assert_eq!(*stored.lock().unwrap(), [0, 2]);
}

#[tokio::test]
async fn short_bodies_pass_without_a_turn_and_small_pieces_share_one() {
    let turns = Turns::default();
    let mut bodies: Vec<_> = (0..=AT_ONCE).map(|_| turns.body_of(merchant(1))).collect();
    for body in &mut bodies {
        for _ in 0..FREE.pieces {
            assert!(is_ready(body), "a short body");
            body.passed(10);
        }
    }
    let ready: Vec<_> = bodies.iter_mut().map(is_ready).collect();
    assert_eq!(ready.iter().filter(|ready| **ready).count(), AT_ONCE);
    for _ in 0..TURN.pieces {
        assert!(is_ready(&mut bodies[0]));
        bodies[0].passed(10);
    }
    assert!(!is_ready(&mut bodies[0]), "the next turn is not its own");
}

#[tokio::test]
async fn what_few_bytes_become_counts_as_well() {
    let turns = Turns::default();
    let mut bodies: Vec<_> = (0..=AT_ONCE).map(|_| turns.body_of(merchant(1))).collect();
    let mut ready_after = |bytes: usize| {
        let mut ready = 0;
        for body in &mut bodies {
            ready += usize::from(is_ready(body));
            body.passed(10);
            body.written(bytes);
        }
        ready
    };
    assert_eq!(ready_after(FREE.bytes), AT_ONCE + 1, "each begins without a turn");
    assert_eq!(ready_after(TURN.bytes), AT_ONCE);
    assert_eq!(ready_after(TURN.bytes), 0, "the turns are used up");
}

#[tokio::test]
async fn merchants_do_not_wait_for_each_other_and_are_forgotten() {
    let turns = Turns::default();
    let mut bodies: Vec<_> = (0..=AT_ONCE).map(|_| turns.body_of(merchant(1))).collect();
    bodies.push(turns.body_of(merchant(2)));
    for body in &mut bodies {
        body.passed(FREE.bytes);
    }
    let ready: Vec<_> = bodies.iter_mut().map(is_ready).collect();
    assert_eq!(ready, [true, true, true, true, false, true]);
    assert_eq!(turns.lock().len(), 2);
    drop(bodies);
    assert_eq!(turns.lock().len(), 2, "turns are taken");
    while !turns.lock().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_body_that_is_dropped_while_it_waits_gives_its_turn_to_the_next_one() {
    let turns = Turns::default();
    let mut bodies: Vec<_> = (0..AT_ONCE + 2).map(|_| turns.body_of(merchant(1))).collect();
    for body in &mut bodies {
        body.passed(FREE.bytes);
        is_ready(body);
    }
    let mut last = bodies.pop().unwrap();
    drop(bodies.pop());
    poll_fn(|cx| last.poll(cx)).await;
}

#[tokio::test(start_paused = true)]
async fn few_long_bodies_of_a_merchant_are_converted_at_once_and_one_caller_keeps_no_other_waiting() {
    let turns = Turns::default();
    let of = |number, caller| turns.body_of(merchant(number)).conversions(CallerKey::of_test(caller));
    let (one, another_caller, other) = (of(1, 1), of(1, 2), of(2, 1));
    let mut taken = Vec::new();
    for _ in 0..CONVERSIONS_AT_ONCE {
        taken.push(one.turn(SHORT_BODY + 1).await.unwrap().unwrap());
    }
    assert!(one.turn(SHORT_BODY).await.unwrap().is_none(), "a short one needs no turn");
    assert!(other.turn(SHORT_BODY + 1).await.unwrap().is_some(), "another merchant's does not wait");
    let begun = Instant::now();
    let refused = one.turn(SHORT_BODY + 1).await.unwrap_err();
    assert_eq!((refused.code(), begun.elapsed()), ("ledger_unavailable", CONVERSION_WAIT));
    // Bodies that are converted for a second each: another caller's waits for the one that is next.
    let begun = Instant::now();
    let many = async {
        let convert = async || {
            let _turn = one.turn(SHORT_BODY + 1).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        };
        futures_util::future::join_all((0..20).map(|_| convert())).await;
    };
    let others = async {
        tokio::task::yield_now().await;
        let _turn = another_caller.turn(usize::MAX).await.unwrap();
        begun.elapsed()
    };
    drop(taken.pop());
    let ((), waited) = tokio::join!(many, others);
    assert!(waited <= Duration::from_secs(2), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn long_responses_wait_as_long_as_they_must_and_take_turns_with_requests() {
    use futures_util::FutureExt as _;

    let turns = Turns::default();
    let of = |number| turns.body_of(merchant(number));
    let requests = of(1).conversions(CallerKey::of_test(1));
    let mut responses: Vec<_> = (0..3).map(|_| of(1).response_conversions(CallerKey::of_test(1))).collect();
    let mut taken = Vec::new();
    for _ in 0..CONVERSIONS_AT_ONCE {
        taken.push(requests.turn(SHORT_BODY + 1).await.unwrap());
    }
    let (few, much) = (Extent::default, || Extent::at_most(usize::MAX));
    let (first, rest) = responses.split_first_mut().unwrap();
    let (second, rest) = rest.split_first_mut().unwrap();
    assert!(poll_fn(|cx| rest[0].poll(cx, FREE_BYTES, few)).await.is_none(), "few bytes need no turn");
    let mut other = of(2).response_conversions(CallerKey::of_test(1));
    assert!(poll_fn(|cx| other.poll(cx, usize::MAX, few)).await.is_some(), "another merchant's goes on");
    let mut waits = Box::pin(poll_fn(|cx| first.poll(cx, FREE_BYTES + 1, few)));
    assert!(waits.as_mut().now_or_never().is_none());
    assert!(poll_fn(|cx| second.poll(cx, usize::MAX, few)).now_or_never().is_none());
    tokio::time::sleep(CONVERSION_WAIT * 2).await;
    assert!(waits.as_mut().now_or_never().is_none());
    drop(taken.pop());
    let turn = waits.await;
    assert!(turn.is_some());
    // The caller of the second one has left, and nothing is converted any more.
    assert!(poll_fn(|cx| second.poll(cx, 0, few)).await.is_none());
    drop(turn);
    assert!(requests.turn(SHORT_BODY + 1).now_or_never().unwrap().unwrap().is_some(), "the turn is free");
    // The bodies of all merchants share the memory. Each has a turn of its own.
    drop(taken);
    let turn = poll_fn(|cx| other.poll(cx, usize::MAX, much)).await;
    let mut waits = Box::pin(poll_fn(|cx| rest[0].poll(cx, usize::MAX, much)));
    assert!(waits.as_mut().now_or_never().is_none());
    let long = vec![b'x'; FREE_BYTES + 1];
    assert!(requests.turn_with_memory(&long[1..]).await.unwrap().is_some(), "a short one needs none");
    let begun = Instant::now();
    let refused = requests.turn_with_memory(&long).await.unwrap_err();
    assert_eq!((refused.code(), begun.elapsed()), ("ledger_unavailable", CONVERSION_WAIT));
    drop(turn);
    assert!(waits.await.is_some());
}

#[tokio::test(start_paused = true)]
async fn the_responses_without_callers_of_a_merchant_are_read_at_one_pace() {
    let (turns, begun) = (Turns::default(), Instant::now());
    let drain = async |number| {
        let mut body = turns.body_of(merchant(number));
        for _ in 0..10 {
            body.drained(DRAINED_AT_ONCE / 2).await;
        }
    };
    tokio::join!(drain(1), drain(1), drain(2));
    assert_eq!(begun.elapsed(), DRAIN_PAUSE * 10);
}
