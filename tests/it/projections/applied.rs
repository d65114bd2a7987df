//! `apply` refuses a projection that could not work, before anything is changed.

use super::bed::{Bed, COUNT};

#[tokio::test]
async fn a_function_or_role_that_would_not_do_is_refused_with_the_reason_and_nothing_is_changed() {
    let bed = Bed::bare().await;
    let role = bed.role.name.clone();
    let define = |signature: &str, rest: &str| {
        format!(
            "CREATE FUNCTION shop.count_order{signature} {rest} LANGUAGE plpgsql AS $f$ BEGIN END $f$"
        )
    };
    let cases = [
        (String::new(), "there is no function"),
        (define("(a int)", "RETURNS void"), "has other arguments"),
        (
            define("(a jsonb)", "RETURNS trigger").replace("trigger", "int"),
            "must be a function that returns void",
        ),
        (
            define("(a jsonb)", "RETURNS void SECURITY DEFINER"),
            "SECURITY DEFINER",
        ),
        (
            define("(a jsonb)", "RETURNS void SET search_path = shop"),
            "search_path",
        ),
        (
            define("(a jsonb)", "RETURNS void")
                + "; REVOKE EXECUTE ON FUNCTION shop.count_order(jsonb) FROM PUBLIC",
            "GRANT EXECUTE ON FUNCTION",
        ),
        (
            define("(a jsonb)", "RETURNS void")
                + &format!("; REVOKE USAGE ON SCHEMA shop FROM {role}"),
            "GRANT USAGE ON SCHEMA shop",
        ),
        (
            define("(a jsonb)", "RETURNS void")
                + &format!("; REVOKE EXECUTE ON FUNCTION lanekeeper.settle_projection FROM {role}"),
            "lanekeeper.settle_projection TO",
        ),
        (
            define("(a jsonb)", "RETURNS void") + &format!("; ALTER ROLE {role} NOLOGIN"),
            "may not log in",
        ),
        (
            define("(a jsonb)", "RETURNS void") + &format!("; ALTER ROLE {role} CREATEROLE"),
            "Lanekeeper's own rights",
        ),
        (
            define("(a jsonb)", "RETURNS void") + "; DROP TABLE shop.total",
            "has no table total",
        ),
    ];
    for (change, told) in cases {
        bed.client
            .batch_execute(&format!("BEGIN; {change}"))
            .await
            .unwrap();
        // The command has a connection of its own: it must see the change.
        bed.client.batch_execute("COMMIT").await.unwrap();
        let ran = bed.try_apply("").await;
        assert_eq!(ran.code, Some(2), "{told}: {}", ran.stderr);
        assert!(ran.stderr.contains(told), "{told}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("subscription.totals."),
            "{}",
            ran.stderr
        );
        let undo = format!(
            "DROP FUNCTION IF EXISTS shop.count_order; GRANT USAGE ON SCHEMA shop TO {role};
             GRANT EXECUTE ON FUNCTION lanekeeper.settle_projection TO {role};
             ALTER ROLE {role} LOGIN NOCREATEROLE; CREATE TABLE IF NOT EXISTS shop.total (a int)"
        );
        bed.client.batch_execute(&undo).await.unwrap();
    }
    assert_eq!(
        bed.count("SELECT count(*) FROM lanekeeper.subscription WHERE adapter = 'projection'")
            .await,
        0
    );
    bed.define(COUNT).await;
    bed.apply("").await;
}

#[tokio::test]
async fn what_means_nothing_to_a_projection_is_refused_where_it_stands() {
    let bed = Bed::bare().await;
    bed.define(COUNT).await;
    for (more, told) in [
        ("limit = { rate = \"1/s\" }", "leave limit away"),
        ("ack = \"required\"", "leave ack and host_bound away"),
        ("host_bound = true", "leave ack and host_bound away"),
        ("timeout = \"2m\"", "between 1 and 60000 ms"),
        ("url = \"https://example.com\"", "unknown key"),
        ("password = \"a\"", "secrets never enter the database"),
    ] {
        let ran = bed.try_apply(more).await;
        assert_eq!(ran.code, Some(2), "{more}: {}", ran.stderr);
        assert!(ran.stderr.contains(told), "{more}: {}", ran.stderr);
    }
}
