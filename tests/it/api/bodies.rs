//! Generated bodies are sent to a worker: each is appended completely, or refused and nothing of it is stored.
//! `src/http/body` tests the parser alone.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use reqwest::Method;
use serde_json::Value;

use super::site::{Answer, Site};

/// The same each time.
const BODIES: usize = 300;

/// A part of an event as JSON text, and whether Postgres takes it. `None`: the member is absent.
type Part = (Option<String>, bool);

#[derive(Clone, Debug)]
struct Sent {
    event_type: Part,
    payload: Part,
    headers: Part,
    priority: Part,
    dedupe_key: Part,
}

impl Sent {
    fn members(&self) -> [(&'static str, &Part); 5] {
        [
            ("event_type", &self.event_type),
            ("payload", &self.payload),
            ("headers", &self.headers),
            ("priority", &self.priority),
            ("dedupe_key", &self.dedupe_key),
        ]
    }

    fn text(&self) -> String {
        let members = self.members().into_iter().filter_map(|(name, part)| {
            let value = part.0.as_ref()?;
            Some(format!("\"{name}\": {value}"))
        });
        format!("{{{}}}", members.collect::<Vec<_>>().join(" ,"))
    }

    fn is_good(&self) -> bool {
        self.members().iter().all(|(_, part)| part.1)
    }
}

/// One of the good ones, and seldom one of the bad ones.
fn part(good: &[Option<String>], bad: &[Option<String>]) -> impl Strategy<Value = Part> + use<> {
    let of = |parts: &[Option<String>], good: bool| {
        select(
            parts
                .iter()
                .map(|it| (it.clone(), good))
                .collect::<Vec<_>>(),
        )
    };
    prop_oneof![19 => of(good, true), 1 => of(bad, false)]
}

fn sent() -> impl Strategy<Value = Sent> {
    let some = |text: &str| Some(text.to_owned());
    let quoted = |text: String| Some(Value::from(text).to_string());
    let deep = |levels: usize| Some(format!("{}1{}", "[".repeat(levels), "]".repeat(levels)));
    let headers_of = |len: usize| Some(format!("{{\"h\":\"{}\"}}", "x".repeat(len)));
    let event_types = part(
        &[some("\"a\""), some(r#""\u00e9""#), quoted("é".repeat(100))],
        &[
            None,
            some("null"),
            some("7"),
            some("\"\""),
            some(r#""a\u0000""#),
            some(r#""\ud800""#),
            quoted("é".repeat(101)),
        ],
    );
    let payloads = part(
        &[
            some("null"),
            some("[1.50, -0, 12345678901234567890123]"),
            some(r#"{"b":"\ud83d\ude00","a":1,"a":2}"#),
            quoted("é".repeat(5_000)),
            deep(500),
        ],
        &[
            None,
            some("nul"),
            some(r#"{"a":"\u0000"}"#),
            some(r#""\ud800""#),
            some(r#""\udc00 \ud800\ud800""#),
            some("1e999999"),
            some("-1e-999999"),
            deep(200_000),
            quoted("x".repeat(1_048_575)),
        ],
    );
    let headers = part(
        &[
            None,
            some("null"),
            some("{}"),
            some(r#"{"n":1.50,"big":12345678901234567890123}"#),
            some(r#"{"h":{"a":[]},"h":"é"}"#),
            headers_of(60_000),
        ],
        &[
            some("[]"),
            some("\"h\""),
            some(r#"{"h":"\u0000"}"#),
            some(r#"{"\ud800":1}"#),
            some(r#"{"n":1e999999}"#),
            headers_of(70_000),
        ],
    );
    let priorities = part(
        &[None, some("null"), some("100"), some("-100")],
        &[some("101"), some("-32768"), some("1e2"), some("\"1\"")],
    );
    // Of one request and another, those that are there are not the same: the session is a part of neither.
    let keys = part(
        &[None, None, some("null")],
        &[some("\"\""), some(r#""\u0000""#), quoted("k".repeat(513))],
    );
    (event_types, payloads, headers, priorities, keys).prop_map(
        |(event_type, payload, headers, priority, dedupe_key)| Sent {
            event_type,
            payload,
            headers,
            priority,
            dedupe_key,
        },
    )
}

/// What the log has of a session is what was sent, in its order.
async fn assert_logged(site: &Site, session: &str, sent: &[Sent]) {
    let texts = |of: fn(&Sent) -> &Part| -> Vec<Option<String>> {
        sent.iter().map(|it| of(it).0.clone()).collect()
    };
    let query = "SELECT count(e.seq), bool_and(
               e.event_type = u.event_type::jsonb #>> '{}' AND e.payload::jsonb = u.payload::jsonb
               AND coalesce(e.headers, '{}') - 'traceparent'
                   = coalesce(nullif(u.headers::jsonb, 'null'), '{}')
               AND e.priority = coalesce(nullif(u.priority, 'null')::int, 0))
        FROM unnest($2::text[], $3::text[], $4::text[], $5::text[]) WITH ORDINALITY
                 AS u (event_type, payload, headers, priority, seq)
        FULL JOIN (SELECT e.* FROM lanekeeper.event AS e JOIN lanekeeper.session AS s USING (session_id)
                   WHERE s.name = $1) AS e ON e.seq = u.seq";
    let row = site
        .plant
        .client
        .query_one(
            query,
            &[
                &session,
                &texts(|it| &it.event_type),
                &texts(|it| &it.payload),
                &texts(|it| &it.headers),
                &texts(|it| &it.priority),
            ],
        )
        .await
        .unwrap();
    let (count, equal): (i64, Option<bool>) = (row.get(0), row.get(1));
    assert_eq!(
        (count, equal),
        (i64::try_from(sent.len()).unwrap(), Some(true))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_body_says_all_of_it_is_appended_as_it_is_or_nothing() {
    let site = Site::open(&[]).await;
    let mut runner = TestRunner::deterministic();
    let bodies = (vec(sent(), 1..5), any::<bool>(), any::<bool>());
    let mut taken = 0;
    let mut logged = 0;
    for number in 0..BODIES {
        let (mut sent, alone, traced) = bodies.new_tree(&mut runner).unwrap().current();
        let text = if alone {
            sent.truncate(1);
            sent[0].text()
        } else {
            let events: Vec<String> = sent.iter().map(Sent::text).collect();
            format!("[{}]", events.join(","))
        };
        let session = format!("s{number}");
        let mut request = site.events(Method::POST, "runs", &session).body(text);
        if traced {
            let trace = format!("00-{}-{}-01", "a".repeat(32), "b".repeat(16));
            request = request.header("traceparent", trace);
        }
        let answer = Answer::of(request.send().await.unwrap()).await;
        let said = format!("{}\n{sent:.300?}", answer.body);
        if sent.iter().all(Sent::is_good) {
            assert_eq!(answer.status, 201, "{said}");
            let answers = match &answer.body {
                Value::Array(answers) => answers.clone(),
                one => vec![one.clone()],
            };
            let seqs: Vec<i64> = answers.iter().filter_map(|it| it["seq"].as_i64()).collect();
            assert!(seqs.iter().copied().eq(1..=sent.len() as i64), "{said}");
            assert_logged(&site, &session, &sent).await;
            taken += 1;
            logged += sent.len() as i64;
        } else {
            assert!((400..500).contains(&answer.status), "{said}");
            let code = answer.body["code"].as_str().unwrap_or_default().to_owned();
            answer.assert_problem(answer.status, &code);
            assert!(answer.body.to_string().len() < 2_000, "{said}");
        }
        assert_eq!(site.logged_events().await, logged, "{said}");
    }
    assert!(taken > BODIES / 5 && taken < BODIES - BODIES / 5, "{taken}");
    assert!(site.worker.stop().await.success());
}
