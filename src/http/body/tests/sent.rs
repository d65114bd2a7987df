//! Generates bodies in the forms that producers may write.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;
use uuid::Uuid;

/// What an event is made of, as text of a body.
#[derive(Clone, Debug)]
pub struct Sent {
    pub event_type: String,
    pub payload: String,
    pub message_id: Option<u128>,
    pub dedupe_key: Option<String>,
    pub priority: Option<i16>,
    pub headers: Option<String>,
    session: bool,
    /// Where its members begin, and what stands between two tokens.
    turn: usize,
    space: &'static str,
}

impl Sent {
    pub fn text(&self) -> String {
        let quoted = |text: &str| Value::from(text).to_string();
        let id = |id| quoted(&Uuid::from_u128(id).to_string());
        let mut members = vec![
            ("event_type", quoted(&self.event_type)),
            ("payload", self.payload.clone()),
        ];
        members.extend(self.message_id.map(|it| ("message_id", id(it))));
        members.extend(
            self.dedupe_key
                .as_deref()
                .map(|it| ("dedupe_key", quoted(it))),
        );
        members.extend(self.priority.map(|it| ("priority", it.to_string())));
        members.extend(self.headers.clone().map(|it| ("headers", it)));
        members.extend(self.session.then(|| ("session", quoted("s"))));
        let turn = self.turn % members.len();
        members.rotate_left(turn);
        let space = self.space;
        let members = members.iter().map(|(name, value)| {
            // A name may be written in another way.
            let name = name.replacen('e', "\\u0065", self.turn % 2);
            format!("{space}\"{name}\"{space}:{space}{value}{space}")
        });
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    }
}

/// JSON that another reader would change: numbers, escapes, spaces, equal keys, depth.
fn document() -> impl Strategy<Value = String> {
    let long = "9".repeat(400);
    let deep = format!("{}1{}", "[".repeat(3_000), "]".repeat(3_000));
    let leaf = select(vec![
        "null".to_owned(),
        "1.50".to_owned(),
        "-0".to_owned(),
        "1e999999".to_owned(),
        format!("{long}.{long}"),
        "12345678901234567890123".to_owned(),
        r#""\u00e9 \ud83d\ude00 \u0000 \ud800 \/""#.to_owned(),
        "\"é 😀 \u{7f}\"".to_owned(),
        "{ }".to_owned(),
        deep,
    ]);
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(|all| format!("[ {}]", all.join(" ,\n"))),
            // Some names are those of an event, and some stand twice.
            vec(
                (
                    select(vec!["a", "a", "payload", "event_type", "\\u0061"]),
                    inner
                ),
                0..3
            )
            .prop_map(|all| {
                let members = all
                    .iter()
                    .map(|(name, value)| format!("\"{name}\":{value}"));
                format!("{{{}}}", members.collect::<Vec<_>>().join(","))
            }),
        ]
    })
}

pub fn headers() -> impl Strategy<Value = String> {
    let value = document();
    vec((select(vec!["h", "i", "traceparent"]), value), 0..3).prop_map(|all| {
        let members = all
            .iter()
            .map(|(name, value)| format!("\"{name}\": {value}"));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    })
}

pub fn sent() -> impl Strategy<Value = Sent> {
    (
        "[a-z_\"\\\\é]{0,12}",
        document(),
        option::of(any::<u128>()),
        option::of("[a-z\\\\ \u{1}]{0,6}"),
        option::of(any::<i16>()),
        option::of(headers()),
        any::<bool>(),
        0..7_usize,
        select(vec!["", " ", "\n\t", "\r\n "]),
    )
        .prop_map(
            |(
                event_type,
                payload,
                message_id,
                dedupe_key,
                priority,
                headers,
                session,
                turn,
                space,
            )| Sent {
                event_type,
                payload,
                message_id,
                dedupe_key,
                priority,
                headers,
                session,
                turn,
                space,
            },
        )
}

pub fn array(sent: &[Sent]) -> String {
    let events: Vec<String> = sent.iter().map(Sent::text).collect();
    format!(" [{}] ", events.join(" , "))
}
