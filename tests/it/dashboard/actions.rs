//! What operators do with lanes, sessions and subscriptions, and what they are told.

use super::desk::Desk;

async fn on_record(desk: &Desk) -> Vec<(String, String)> {
    let statement =
        "SELECT action, coalesce(reason, '') FROM lanekeeper.operation ORDER BY operation_id";
    let rows = desk.plant.client.query(statement, &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_on_a_lane_that_moved_on_is_told_and_not_done() {
    let desk = Desk::open(&[]).await;
    let lane = desk.block("s", 3).await;
    let id = lane.to_string();
    let mut operator = desk.visitor(&["read", "operate"]).await;
    let skip = [
        ("lane", &*id),
        ("action", "skip"),
        ("head", "1"),
        ("back", "/session?stream=runs&name=s"),
    ];
    let answer = operator.act("/action/lane", &skip).await;
    assert_eq!(
        operator.told(&answer).await,
        "Seq 1 was skipped; what is behind it goes on to out."
    );
    assert_eq!(desk.lane_text("s", "head_seq").await, "2");
    // A second tab, with the head that was.
    for action in ["skip", "retry"] {
        let stale = [
            ("lane", &*id),
            ("action", action),
            ("head", "1"),
            ("back", "/session?stream=runs&name=s"),
        ];
        let answer = operator.act("/action/lane", &stale).await;
        let told = operator.told(&answer).await;
        assert!(
            told.contains("moved on meanwhile") && told.contains("Nothing was changed"),
            "{told}"
        );
    }
    assert_eq!(desk.lane_text("s", "head_seq").await, "2");
    // Told once.
    let again = operator.get("/session?stream=runs&name=s").await;
    assert!(!again.has("moved on meanwhile"));
    assert_eq!(on_record(&desk).await.len(), 1);
    for (fields, status) in [
        (vec![("lane", &*id), ("action", "skip")], 400),
        (vec![("lane", &*id), ("action", "none")], 400),
        (vec![("lane", "x"), ("action", "park")], 400),
        (vec![("lane", "99"), ("action", "park")], 404),
    ] {
        assert_eq!(
            operator.act("/action/lane", &fields).await.status,
            status,
            "{fields:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_is_parked_unparked_and_retried_and_it_is_on_record_by_whom() {
    let desk = Desk::open(&[]).await;
    let id = desk.block("s", 2).await.to_string();
    let mut operator = desk.visitor(&["read", "operate"]).await;
    let park = [("lane", &*id), ("action", "park"), ("reason", "it's <odd>")];
    let answer = operator.act("/action/lane", &park).await;
    assert_eq!(
        operator.told(&answer).await,
        "The lane to out is parked until somebody unparks it."
    );
    assert_eq!(desk.lane_text("s", "state").await, "parked");
    let page = operator.get("/lanes").await;
    page.assert_page(200, "it's &lt;odd&gt;");
    operator
        .act("/action/lane", &[("lane", &id), ("action", "unpark")])
        .await;
    assert_ne!(desk.lane_text("s", "state").await, "parked");
    desk.plant.receiver.set_broken(false);
    operator
        .act("/action/lane", &[("lane", &id), ("action", "retry")])
        .await;
    desk.plant.settled().await;
    let by = "by visitor, dashboard";
    assert_eq!(
        on_record(&desk).await,
        [
            ("park".to_owned(), format!("it's <odd> ({by})")),
            ("unpark".to_owned(), by.to_owned()),
            ("retry".to_owned(), by.to_owned()),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_is_paused_and_resumed_once() {
    let desk = Desk::open(&[]).await;
    let mut operator = desk.visitor(&["read", "operate"]).await;
    let back = ("back", "/subscription?name=out");
    for (action, first, second) in [
        ("pause", "out is paused.", "out was paused already"),
        ("resume", "out is running.", "out was running already"),
    ] {
        let fields = [
            ("name", "out"),
            ("action", action),
            ("reason", "tonight"),
            back,
        ];
        let answer = operator.act("/action/subscription", &fields).await;
        assert_eq!(operator.told(&answer).await, first);
        let answer = operator.act("/action/subscription", &fields).await;
        assert!(operator.told(&answer).await.starts_with(second));
    }
    let page = operator.get("/subscription?name=out").await;
    page.assert_page(200, "lanekeeper subscription pause out");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_paused_resumed_closed_and_reopened() {
    let desk = Desk::open(&[]).await;
    desk.block("a b", 2).await;
    let mut operator = desk.visitor(&["read", "operate"]).await;
    let back = "/session?stream=runs&name=a+b";
    let page = operator.get(back).await;
    page.assert_page(200, "lanekeeper session close --drain runs 'a b'");
    for (action, told) in [
        ("pause", "1 lane was parked."),
        (
            "pause",
            "Every lane was parked already: nothing was changed.",
        ),
        ("resume", "1 lane was unparked."),
        (
            "drain",
            "The session takes no more events; what is there is delivered first.",
        ),
        ("close", "The session is closed; 2 events expired."),
        ("reopen", "The session takes events again."),
        ("reopen", "The session was not closed: nothing was changed."),
    ] {
        let fields = [
            ("stream", "runs"),
            ("name", "a b"),
            ("action", action),
            ("back", back),
        ];
        let answer = operator.act("/action/session", &fields).await;
        assert_eq!(operator.told(&answer).await, told, "{action}");
    }
}
