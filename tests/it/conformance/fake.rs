//! The fake destination passes the suite too. Otherwise tests that rely on it would prove nothing.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_adapters::fake::{Fake, Recorded};
use lanekeeper_core::adapter::{Adapter, Verdict};
use serde::Serialize;
use serde_json::value::RawValue;

use super::conforms;
use super::destination::{
    Conduct, Destination, Recorder, Watched, deliver, deliver_in_task, event, retry_error,
};

conforms!(Fake:
    accepted_event_arrives_whole,
    passing_failure_is_retried,
    final_refusal_is_a_rejection,
    silence_ends_at_the_time_out_in_a_retry,
    dropped_delivery_leaves_nothing_running,
    payload_passes_through_unchanged,
    any_session_name_is_carried,
    concurrent_deliveries_do_not_mix,
);

#[async_trait]
impl Destination for Fake {
    async fn start(conduct: Conduct, timeout: Duration) -> Self {
        let fake = Fake::answering(move |_| match conduct {
            Conduct::Accept | Conduct::Hang => Verdict::Accepted,
            Conduct::FailForNow => passing(),
            Conduct::Refuse => Verdict::Rejected {
                error: "never".to_owned(),
            },
        })
        .with_timeout(timeout);
        if conduct == Conduct::Hang {
            fake.hold_all();
        }
        fake
    }

    fn adapter(&self) -> Arc<dyn Adapter> {
        Arc::new(self.clone())
    }
}

#[async_trait]
impl Recorder for Fake {
    async fn bodies(&self, n: usize) -> Vec<String> {
        self.wait_for(n)
            .await
            .deliveries
            .iter()
            .map(as_body)
            .collect()
    }
}

#[async_trait]
impl Watched for Fake {
    async fn reached(&self) {
        self.wait_for(1).await;
    }

    async fn abandoned(&self) {
        self.wait_until(|seen| seen.running == 0).await;
    }
}

fn passing() -> Verdict {
    Verdict::Retry {
        error: "not now".to_owned(),
        after: None,
    }
}

/// The fake records events, not bodies.
fn as_body(recorded: &Recorded) -> String {
    #[derive(Serialize)]
    struct Body<'a> {
        id: uuid::Uuid,
        stream: &'a str,
        session: &'a str,
        seq: i64,
        r#type: &'a str,
        created_at: jiff::Timestamp,
        attempt: u32,
        data: Box<RawValue>,
    }
    let event = &recorded.event;
    let body = Body {
        id: event.message_id,
        stream: &event.stream,
        session: &event.session,
        seq: event.seq,
        r#type: &event.event_type,
        created_at: event.created_at,
        attempt: recorded.attempt,
        data: RawValue::from_string(event.payload.clone()).unwrap(),
    };
    serde_json::to_string(&body).unwrap()
}

#[tokio::test]
async fn scripted_verdicts_are_given_in_turn_and_then_the_usual_one() {
    let fake = Fake::new();
    fake.script("a", 1, [passing(), passing()]);
    let (first, other) = (event("a", 1, "1"), event("b", 1, "1"));
    retry_error(deliver(&fake, &first).await);
    assert_eq!(deliver(&fake, &other).await, Verdict::Accepted);
    retry_error(deliver(&fake, &first).await);
    assert_eq!(deliver(&fake, &first).await, Verdict::Accepted);
    assert_eq!(fake.seen().accepted(), [("b".into(), 1), ("a".into(), 1)]);
}

#[tokio::test]
async fn held_session_waits_and_holds_no_other() {
    let fake = Fake::new();
    fake.hold("a");
    let held = deliver_in_task(fake.adapter(), event("a", 1, "1"));
    fake.wait_for(1).await;
    assert_eq!(deliver(&fake, &event("b", 1, "1")).await, Verdict::Accepted);
    assert_eq!(fake.seen().running, 1);
    fake.release("a");
    assert_eq!(held.await.unwrap(), Verdict::Accepted);
    assert_eq!(fake.seen().running, 0);
}
