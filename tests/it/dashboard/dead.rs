//! Dead letters: one, and many at once.

use super::desk::Desk;

#[tokio::test(flavor = "multi_thread")]
async fn many_dead_letters_are_counted_before_they_are_requeued() {
    let desk = Desk::open(&[]).await;
    let ids = desk.dead_letters("s", 12).await;
    let mut operator = desk.visitor(&["read", "operate"]).await;
    let list = operator.get("/dead").await;
    list.assert_page(200, "status 500: &lt;b&gt;no&lt;/b&gt;");
    let chosen: String = ids[..10].iter().map(|id| format!("&id={id}")).collect();
    let review = operator
        .get(&format!("/dead/review?action=requeue{chosen}"))
        .await;
    review.assert_page(200, "Requeue 10 dead letters?");
    review.assert_page(200, "1 session");
    let form: Vec<String> = ids[..10].iter().map(i64::to_string).collect();
    let mut fields: Vec<(&str, &str)> = form.iter().map(|id| ("id", id.as_str())).collect();
    fields.extend([("action", "requeue"), ("back", "/dead")]);
    let answer = operator.act("/action/dead", &fields).await;
    assert_eq!(
        operator.told(&answer).await,
        "10 dead letters were requeued."
    );
    desk.plant.settled().await;
    let left = "SELECT count(*) FROM lanekeeper.dead WHERE resolution IS NULL";
    crate::support::wait_until(
        crate::process::plant::LIMIT,
        "they are delivered",
        async || desk.plant.count(left).await == 2,
    )
    .await;
    let answer = operator.act("/action/dead", &fields).await;
    let told = operator.told(&answer).await;
    assert!(
        told.contains("10 others had been dealt with already"),
        "{told}"
    );

    let all = operator
        .get("/dead/review?action=drop-all&subscription=out&text=STATUS+500")
        .await;
    all.assert_page(200, "Drop 2 dead letters?");
    let none = operator
        .get("/dead/review?action=drop-all&text=elsewhere")
        .await;
    none.assert_page(200, "Nothing is chosen");
    let last = ids[11].to_string();
    let answer = operator
        .act("/action/dead", &[("id", &last), ("action", "drop")])
        .await;
    assert_eq!(operator.told(&answer).await, "1 dead letter was dropped.");
    assert_eq!(desk.plant.count(left).await, 1);
    let page = operator.get(&format!("/dead/letter?id={last}")).await;
    page.assert_page(200, "dropped");
    assert!(
        !page.has("/action/dead"),
        "there is nothing more to do about it"
    );
    let none = operator.act("/action/dead", &[("action", "drop")]).await;
    assert_eq!(none.status, 400);
    let many: Vec<String> = (1..=1_001).map(|id: i32| id.to_string()).collect();
    let mut fields: Vec<(&str, &str)> = many.iter().map(|id| ("id", id.as_str())).collect();
    fields.push(("action", "drop"));
    assert_eq!(operator.act("/action/dead", &fields).await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_dead_letters_leads_to_older_ones_and_keeps_its_filter() {
    let desk = Desk::open(&[]).await;
    desk.dead_letters("s", 120).await;
    let mut reader = desk.visitor(&["read"]).await;
    let mut path = "/dead?subscription=out&text=500".to_owned();
    let mut seen = 0;
    for page in [50, 50, 20] {
        let answer = reader.get(&path).await;
        let rows = answer.body.matches("№ ").count();
        assert_eq!(rows, page, "{path}");
        seen += rows;
        if seen < 120 {
            path = answer
                .between(
                    "class=\"older\" aria-label=\"More\"><a class=\"button\" href=\"",
                    "\"",
                )
                .replace("&amp;", "&");
            assert!(
                path.starts_with("/dead?subscription=out&text=500&before="),
                "{path}"
            );
        }
    }
    assert_eq!(seen, 120);
}
