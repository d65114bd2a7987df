//! The behaviours of the conformance suite. Each runs with a destination of its own.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use lanekeeper_core::adapter::Verdict;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::destination::{
    Conduct, Destination, Recorder, Watched, deliver, deliver_in_task, event, rejection,
    retry_error,
};

/// Long enough never to end a delivery that works.
const AMPLE: Duration = Duration::from_secs(20);
/// What a loaded machine may add to a time-out.
const SLACK: Duration = Duration::from_secs(3);

#[derive(Deserialize)]
struct Body {
    id: uuid::Uuid,
    stream: String,
    session: String,
    seq: i64,
    r#type: String,
    created_at: String,
    attempt: u32,
    /// Kept as text: to compare values would hide a re-serialisation.
    data: Box<RawValue>,
}

fn parse(text: &str) -> Body {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text:.300}"))
}

pub(crate) async fn accepted_event_arrives_whole<D: Recorder>() {
    let destination = D::start(Conduct::Accept, AMPLE).await;
    let event = event("s-1", 42, r#"{"reason":"done"}"#);
    assert_eq!(
        deliver(&*destination.adapter(), &event).await,
        Verdict::Accepted
    );
    let bodies = destination.bodies(1).await;
    assert_eq!(bodies.len(), 1);
    let body = parse(&bodies[0]);
    assert_eq!(body.id, event.message_id);
    assert_eq!(
        (body.stream.as_str(), body.session.as_str(), body.seq),
        ("hooks", "s-1", 42)
    );
    assert_eq!((body.r#type.as_str(), body.attempt), ("agent_stop", 3));
    assert_eq!(body.created_at, "2026-01-02T03:04:05.678901Z");
    assert_eq!(body.data.get(), event.payload);
}

pub(crate) async fn passing_failure_is_retried<D: Destination>() {
    let destination = D::start(Conduct::FailForNow, AMPLE).await;
    let verdict = deliver(&*destination.adapter(), &event("s-1", 1, D::PLAIN)).await;
    assert!(!retry_error(verdict).is_empty());
}

pub(crate) async fn final_refusal_is_a_rejection<D: Destination>() {
    let destination = D::start(Conduct::Refuse, AMPLE).await;
    let verdict = deliver(&*destination.adapter(), &event("s-1", 1, D::PLAIN)).await;
    assert!(!rejection(verdict).is_empty());
}

pub(crate) async fn silence_ends_at_the_time_out_in_a_retry<D: Destination>() {
    let timeout = Duration::from_millis(400);
    let destination = D::start(Conduct::Hang, timeout).await;
    let started = Instant::now();
    let verdict = deliver(&*destination.adapter(), &event("s-1", 1, D::PLAIN)).await;
    let took = started.elapsed();
    assert!(!retry_error(verdict).is_empty());
    assert!(took >= timeout && took < timeout + SLACK, "{took:?}");
}

pub(crate) async fn dropped_delivery_leaves_nothing_running<D: Watched>() {
    let destination = D::start(Conduct::Hang, AMPLE).await;
    let delivery = deliver_in_task(destination.adapter(), event("s-1", 1, D::PLAIN));
    destination.reached().await;
    assert!(!delivery.is_finished());
    delivery.abort();
    assert!(delivery.await.unwrap_err().is_cancelled());
    tokio::time::timeout(SLACK, destination.abandoned())
        .await
        .expect("something still runs");
}

pub(crate) async fn payload_passes_through_unchanged<D: Recorder>() {
    let destination = D::start(Conduct::Accept, AMPLE).await;
    let adapter = destination.adapter();
    let payloads = [
        r#"{"b": 1.00, "a": 123456789012345678901234567890, "a": "twice"}"#.to_owned(),
        r#""äöü 漢字 🦀 \u0000 \ud83e\udd80 \u001b[31m""#.to_owned(),
        format!("\"{}\"", "x".repeat(1024 * 1024)),
        format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)),
        "null".to_owned(),
    ];
    for (seq, payload) in (1..).zip(&payloads) {
        assert_eq!(
            deliver(&*adapter, &event("s-1", seq, payload)).await,
            Verdict::Accepted
        );
    }
    let mut bodies: Vec<_> = destination
        .bodies(payloads.len())
        .await
        .iter()
        .map(|text| parse(text))
        .collect();
    bodies.sort_by_key(|body| body.seq);
    let arrived: Vec<_> = bodies.iter().map(|body| body.data.get()).collect();
    // Not assert_eq: a failure would print megabytes.
    assert!(arrived == payloads.each_ref().map(|payload| payload.as_str()));
}

pub(crate) async fn any_session_name_is_carried<D: Recorder>() {
    let destination = D::start(Conduct::Accept, AMPLE).await;
    let adapter = destination.adapter();
    let longest = "🦀".repeat(128);
    assert_eq!(longest.len(), 512);
    let names = [
        "ünï/cødé",
        "two\nlines\r\n",
        " padded ",
        "100%25",
        "-n",
        "\u{1b}[2J",
        "\"'`$(id)",
        &longest,
    ];
    for name in names {
        assert_eq!(
            deliver(&*adapter, &event(name, 1, "{}")).await,
            Verdict::Accepted,
            "{name}"
        );
    }
    let bodies = destination.bodies(names.len()).await;
    let arrived: BTreeSet<_> = bodies.iter().map(|text| parse(text).session).collect();
    assert_eq!(arrived, names.map(str::to_owned).into());
}

pub(crate) async fn concurrent_deliveries_do_not_mix<D: Recorder>() {
    const LANES: usize = 12;
    let destination = D::start(Conduct::Accept, AMPLE).await;
    // More than a pipe or a socket takes at once.
    let filling = "y".repeat(150_000);
    let deliveries: Vec<_> = (0..LANES)
        .map(|lane| {
            let payload = format!("\"{lane}{filling}\"");
            deliver_in_task(
                destination.adapter(),
                event(&format!("s-{lane}"), 1, &payload),
            )
        })
        .collect();
    for delivery in deliveries {
        assert_eq!(delivery.await.unwrap(), Verdict::Accepted);
    }
    let bodies = destination.bodies(LANES).await;
    let mut arrived = BTreeSet::new();
    for body in bodies.iter().map(|text| parse(text)) {
        let lane = body.session.strip_prefix("s-").unwrap();
        assert!(
            body.data.get() == format!("\"{lane}{filling}\""),
            "lane {lane} is torn"
        );
        arrived.insert(lane.to_owned());
    }
    assert_eq!(arrived.len(), LANES);
}
