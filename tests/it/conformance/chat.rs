//! The behaviours that only chat adapters have (G5, E7).

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lanekeeper_adapters::{Environment, build};
use lanekeeper_core::adapter::{Adapter, Role, Verdict};
use lanekeeper_core::memory::{Memory, MemoryError, MessageName, ProcessMemory};
use serde_json::{Value, json};

use super::destination::{
    Conduct, Destination, Watched, deliver, deliver_in_task, event, rejection, retry_error,
};
use crate::support::platform::{Fault, Kind, Platform, Seen, TOKEN};

/// Long enough never to end a delivery that works.
pub(crate) const AMPLE: Duration = Duration::from_secs(20);

/// A chat platform's fake.
#[async_trait]
pub(crate) trait Fake: Deref<Target = Platform> + Sized + Send + Sync + 'static {
    const KIND: &'static str;
    /// UTF-16 units of a message.
    const LONGEST: usize;
    /// Two places where its bot can speak.
    const CHATS: [&'static str; 2];

    async fn open() -> Self;

    fn api_url(&self) -> String {
        self.url().to_owned()
    }
}

/// A bot, and the platform that it speaks on.
pub(crate) struct Bot<F> {
    pub(crate) server: F,
    pub(crate) adapter: Arc<dyn Adapter>,
}

#[async_trait]
impl<F: Fake> Destination for Bot<F> {
    const PLAIN: &'static str = r#"{"text": "done", "chat": "42"}"#;

    async fn start(conduct: Conduct, timeout: Duration) -> Self {
        let server = F::open().await;
        server.fault(match conduct {
            Conduct::Accept => None,
            Conduct::FailForNow => Some(Fault::Broken),
            Conduct::Refuse => Some(Fault::Forbidden),
            Conduct::Hang => Some(Fault::Silent),
        });
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap();
        let settings = json!({
            "token_env": "BOT_TOKEN", "api_url": server.api_url(), "chat_from": "/chat", "timeout_ms": timeout_ms,
        });
        let environment = Environment::with_variables(true, [("BOT_TOKEN", TOKEN)]);
        let adapter = build(F::KIND, "audit", &settings, &environment).unwrap();
        Self { server, adapter }
    }

    fn adapter(&self) -> Arc<dyn Adapter> {
        Arc::clone(&self.adapter)
    }
}

#[async_trait]
impl<F: Fake> Watched for Bot<F> {
    async fn reached(&self) {
        let hangs = |seen: &Seen| seen.hanging == 1;
        self.server
            .wait_until(AMPLE, "a request hangs", hangs)
            .await;
    }

    async fn abandoned(&self) {
        let gone = |seen: &Seen| seen.hung == 1 && seen.hanging == 0;
        self.server.wait_until(AMPLE, "it was given up", gone).await;
    }
}

/// A bot as the suite knows it.
pub(crate) trait Messenger: Destination {
    const KIND: &'static str;
    const LONGEST: usize;
    const CHATS: [&'static str; 2];

    fn platform(&self) -> &Platform;

    /// The settings that reach it, without a chat.
    fn settings(&self) -> Value;
}

impl<F: Fake> Messenger for Bot<F> {
    const KIND: &'static str = F::KIND;
    const LONGEST: usize = F::LONGEST;
    const CHATS: [&'static str; 2] = F::CHATS;

    fn platform(&self) -> &Platform {
        &self.server
    }

    fn settings(&self) -> Value {
        json!({"token_env": "BOT_TOKEN", "api_url": self.server.api_url()})
    }
}

/// An adapter with more settings and this memory, as another process would build it.
pub(crate) fn build_with<D: Messenger>(
    destination: &D,
    memory: &Arc<dyn Memory>,
    more: Value,
) -> Arc<dyn Adapter> {
    let mut settings = destination.settings();
    let own = settings.as_object_mut().unwrap();
    own.insert("chat_from".to_owned(), "/chat".into());
    own.append(&mut more.as_object().unwrap().clone());
    let environment =
        Environment::with_variables(true, [("BOT_TOKEN", TOKEN)]).with_memory(Arc::clone(memory));
    build(D::KIND, "audit", &settings, &environment).unwrap()
}

fn memory() -> Arc<dyn Memory> {
    Arc::new(ProcessMemory::default())
}

async fn said<D: Messenger>() -> (D, Arc<dyn Adapter>) {
    let destination = D::start(Conduct::Accept, AMPLE).await;
    let adapter = build_with(&destination, &memory(), json!({}));
    (destination, adapter)
}

fn text<D: Messenger>(text: &str) -> String {
    json!({"text": text, "chat": D::CHATS[0]}).to_string()
}

fn version<D: Messenger>(key: &str, text: &str, is_final: bool) -> String {
    let chat = D::CHATS[0];
    json!({"text": text, "chat": chat, "message_key": key, "final": is_final}).to_string()
}

/// Delivers each payload as the next event of a session; all are accepted.
async fn tell(adapter: &dyn Adapter, payloads: &[String]) {
    for (seq, payload) in (1..).zip(payloads) {
        let verdict = deliver(adapter, &event("s-1", seq, payload)).await;
        assert_eq!(verdict, Verdict::Accepted, "{payload:.200}");
    }
}

pub(crate) async fn any_text_is_shown_as_it_is<D: Messenger>() {
    let (destination, adapter) = said::<D>().await;
    let texts = [
        "done",
        "äöü 漢字 🦀 \u{200d} e\u{301}",
        "<b>&amp;</b> @everyone <!channel> <@U1>",
        "1. _a_ *b* `c` [d](e) ~f~ > # + - = | {} . ! \\",
        "line\n\n```rust\nfn main() { println!(\"{}\", 1); }\n```\nend",
    ];
    tell(&*adapter, &texts.map(text::<D>)).await;
    assert_eq!(destination.platform().seen().texts(), texts);
}

pub(crate) async fn a_long_text_is_several_messages_in_order<D: Messenger>() {
    let (destination, adapter) = said::<D>().await;
    let long: Vec<String> = (0..3 * D::LONGEST / 8).map(|n| format!("{n:07}")).collect();
    tell(&*adapter, &[text::<D>(&long.join(" "))]).await;
    let seen = destination.platform().seen();
    assert!(seen.messages.len() >= 3);
    let shown = seen.texts().join(" ");
    assert!(shown == long.join(" "), "{shown:.300}");
}

pub(crate) async fn one_request_is_one_turn<D: Messenger>() {
    let (destination, adapter) = said::<D>().await;
    let event = event("s-1", 1, &text::<D>(&"x".repeat(2 * D::LONGEST)));
    let delivery = lanekeeper_core::adapter::Delivery {
        event: &event,
        subscription: "audit",
        attempt: 1,
        requeued: false,
        replay_id: None,
        asks_ack: false,
        trace: None,
        observed: None,
    };
    assert_eq!(adapter.deliver(&delivery).await, Verdict::Partial);
    assert_eq!(destination.platform().seen().calls.len(), 1);
    assert_eq!(adapter.deliver(&delivery).await, Verdict::Accepted);
    assert_eq!(destination.platform().seen().calls.len(), 2);
}

pub(crate) async fn later_versions_edit_the_message<D: Messenger>() {
    let (destination, adapter) = said::<D>().await;
    let versions = [("a", false), ("ab", false), ("ab", false), ("abc", true)];
    tell(
        &*adapter,
        &versions.map(|(text, last)| version::<D>("k", text, last)),
    )
    .await;
    let seen = destination.platform().seen();
    assert_eq!((seen.texts(), seen.count(Kind::Send)), (vec!["abc"], 1));
}

pub(crate) async fn a_successor_edits_what_it_did_not_send<D: Messenger>() {
    let (destination, _) = said::<D>().await;
    let memory = memory();
    for (seq, text) in (1..).zip(["one", "two", "three"]) {
        let another = build_with(&destination, &memory, json!({}));
        let event = event("s-1", seq, &version::<D>("k", text, false));
        assert_eq!(deliver(&*another, &event).await, Verdict::Accepted);
    }
    let seen = destination.platform().seen();
    assert_eq!((seen.texts(), seen.count(Kind::Send)), (vec!["three"], 1));
}

pub(crate) async fn keys_sessions_and_chats_have_their_own_messages<D: Messenger>() {
    let (destination, adapter) = said::<D>().await;
    let [one, other] = D::CHATS;
    for (session, chat, key) in [
        ("a", one, "k"),
        ("b", one, "k"),
        ("a", other, "k"),
        ("a", one, "l"),
    ] {
        let payload = json!({"text": "x", "chat": chat, "message_key": key}).to_string();
        let verdict = deliver(&*adapter, &event(session, 1, &payload)).await;
        assert_eq!(verdict, Verdict::Accepted);
    }
    assert_eq!(destination.platform().seen().count(Kind::Send), 4);
}

pub(crate) async fn a_message_grows_and_shrinks_by_parts<D: Messenger>() {
    let (destination, adapter) = said::<D>().await;
    let [short, long] = ["x", "y"].map(|word| word.repeat(D::LONGEST));
    let grown = format!("{short}{short}{long}");
    let versions = [&short, &grown, &long].map(|text| version::<D>("k", text, false));
    tell(&*adapter, &versions[..2]).await;
    let shown = destination.platform().seen();
    assert!(shown.texts().concat() == grown);
    tell(&*adapter, &versions[2..]).await;
    let seen = destination.platform().seen();
    assert!(seen.texts() == [long.as_str()], "{}", seen.texts().len());
    assert_eq!((seen.count(Kind::Send), seen.count(Kind::Delete)), (3, 2));
}

pub(crate) async fn a_retry_sends_only_the_parts_that_are_missing<D: Messenger>() {
    let (destination, _) = said::<D>().await;
    let memory = memory();
    let words = ["a", "b", "c"].map(|word| word.repeat(D::LONGEST));
    let event = event("s-1", 1, &text::<D>(&words.concat()));
    let delivery = lanekeeper_core::adapter::Delivery {
        event: &event,
        subscription: "audit",
        attempt: 1,
        requeued: false,
        replay_id: None,
        asks_ack: false,
        trace: None,
        observed: None,
    };
    let first = build_with(&destination, &memory, json!({}));
    assert_eq!(first.deliver(&delivery).await, Verdict::Partial);
    assert_eq!(first.deliver(&delivery).await, Verdict::Partial);
    destination.platform().fault_once(Fault::Broken);
    retry_error(first.deliver(&delivery).await);
    let successor = build_with(&destination, &memory, json!({}));
    assert_eq!(deliver(&*successor, &event).await, Verdict::Accepted);
    let seen = destination.platform().seen();
    assert!(seen.texts() == words, "{} messages", seen.texts().len());
}

/// A memory that can be out of reach.
#[derive(Default)]
struct Forgetful {
    inner: ProcessMemory,
    no_reading: AtomicBool,
    no_writing: AtomicBool,
}

impl Forgetful {
    fn reach(&self, gone: &AtomicBool) -> Result<(), MemoryError> {
        match gone.load(Ordering::SeqCst) {
            true => Err(MemoryError {
                source: "out of reach".into(),
            }),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Memory for Forgetful {
    async fn recall(&self, name: MessageName<'_>) -> Result<Vec<(i32, String)>, MemoryError> {
        self.reach(&self.no_reading)?;
        self.inner.recall(name).await
    }

    async fn remember(
        &self,
        name: MessageName<'_>,
        part: i32,
        reference: &str,
    ) -> Result<(), MemoryError> {
        self.reach(&self.no_writing)?;
        self.inner.remember(name, part, reference).await
    }

    async fn forget(&self, name: MessageName<'_>, part: i32) -> Result<(), MemoryError> {
        self.reach(&self.no_writing)?;
        self.inner.forget(name, part).await
    }

    async fn given_up(
        &self,
        subscription: &str,
        session: &str,
        seqs: &[i64],
    ) -> Result<Vec<i64>, MemoryError> {
        self.reach(&self.no_reading)?;
        self.inner.given_up(subscription, session, seqs).await
    }
}

pub(crate) async fn without_its_memory_it_sends_nothing_and_nothing_twice<D: Messenger>() {
    let (destination, _) = said::<D>().await;
    let memory = Arc::new(Forgetful::default());
    let adapter = build_with(
        &destination,
        &(Arc::clone(&memory) as Arc<dyn Memory>),
        json!({}),
    );
    let event = event("s-1", 1, &version::<D>("k", "a", false));
    memory.no_reading.store(true, Ordering::SeqCst);
    let error = retry_error(deliver(&*adapter, &event).await);
    assert!(error.contains("out of reach"), "{error}");
    assert_eq!(destination.platform().seen().calls.len(), 0);
    memory.no_reading.store(false, Ordering::SeqCst);
    memory.no_writing.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        retry_error(deliver(&*adapter, &event).await);
    }
    memory.no_writing.store(false, Ordering::SeqCst);
    // A newer version, which made that one needless.
    let newer = super::destination::event("s-1", 2, &version::<D>("k", "ab", false));
    assert_eq!(deliver(&*adapter, &newer).await, Verdict::Accepted);
    let seen = destination.platform().seen();
    assert_eq!((seen.texts(), seen.count(Kind::Send)), (vec!["ab"], 1));
}

pub(crate) async fn an_answer_that_cannot_be_read_has_nothing_sent_again<D: Messenger>() {
    let (destination, adapter) = said::<D>().await;
    let platform = destination.platform();
    let answers = ["", "<html>fine</html>", "{\"ok\": tr", "{}", "[]", "\"ok\""];
    for (seq, answer) in (1..).zip(answers) {
        platform.garble_once(answer);
        let event = event("s-1", seq, &version::<D>(answer, "a", true));
        assert_eq!(
            deliver(&*adapter, &event).await,
            Verdict::Accepted,
            "{answer:?}"
        );
        assert_eq!(
            platform.seen().count(Kind::Send),
            usize::try_from(seq).unwrap()
        );
    }
    // A text of two messages, and an edit.
    let words = ["b", "c"].map(|word| word.repeat(D::LONGEST));
    let count = platform.seen().count(Kind::Send);
    platform.garble_once("<html>");
    tell(&*adapter, &[version::<D>("two", &words.concat(), false)]).await;
    assert_eq!(platform.seen().count(Kind::Send), count + 2);
    tell(&*adapter, &[version::<D>("edited", "d", false)]).await;
    platform.garble_once("<html>");
    tell(&*adapter, &[version::<D>("edited", "de", true)]).await;
    let seen = platform.seen();
    assert_eq!(
        (seen.count(Kind::Send), seen.count(Kind::Edit)),
        (count + 3, 1)
    );
}

pub(crate) async fn a_message_that_was_deleted_is_sent_anew<D: Messenger>() {
    let (destination, adapter) = said::<D>().await;
    let versions = ["a", "b", "c"].map(|text| version::<D>("k", text, text == "c"));
    tell(&*adapter, &versions[..1]).await;
    destination.platform().delete_newest();
    tell(&*adapter, &versions[1..]).await;
    let seen = destination.platform().seen();
    assert_eq!((seen.texts(), seen.count(Kind::Send)), (vec!["c"], 2));
}

pub(crate) async fn concurrent_messages_do_not_mix<D: Messenger>() {
    let (destination, adapter) = said::<D>().await;
    let filling = "y".repeat(D::LONGEST / 2);
    let deliveries: Vec<_> = (0..12)
        .map(|lane| {
            let payload = text::<D>(&format!("{lane} {filling}"));
            deliver_in_task(
                Arc::clone(&adapter),
                event(&format!("s-{lane}"), 1, &payload),
            )
        })
        .collect();
    for delivery in deliveries {
        assert_eq!(delivery.await.unwrap(), Verdict::Accepted);
    }
    let seen = destination.platform().seen();
    let mut texts = seen.texts();
    texts.sort_unstable();
    let mut expected: Vec<_> = (0..12).map(|lane| format!("{lane} {filling}")).collect();
    expected.sort_unstable();
    assert!(texts == expected, "{texts:.200?}");
}

pub(crate) async fn a_pause_is_of_the_one_chat<D: Messenger>() {
    let (destination, adapter) = said::<D>().await;
    let [one, other] =
        D::CHATS.map(|chat| event("s-1", 1, &json!({"text": "a", "chat": chat}).to_string()));
    destination
        .platform()
        .fault_once(Fault::Pause { seconds: 7 });
    match deliver(&*adapter, &one).await {
        Verdict::Throttled {
            after,
            of: Some(bucket),
            ..
        } => {
            assert_eq!(after, Duration::from_secs(7));
            let has = |event| adapter.buckets(event).contains(&bucket);
            assert!(has(&one) && !has(&other), "{bucket:?}");
        }
        verdict => panic!("{verdict:?}"),
    }
}

pub(crate) async fn what_has_no_text_or_place_is_refused_by_its_pointer<D: Messenger>() {
    let (destination, adapter) = said::<D>().await;
    for (payload, pointer) in [
        (json!({"chat": D::CHATS[0], "text": "  \n"}), "/text"),
        (json!({"text": "a"}), "/chat"),
    ] {
        let event = event("s-1", 1, &payload.to_string());
        let error = rejection(deliver(&*adapter, &event).await);
        assert!(
            error.contains(pointer) && error.contains("nothing was sent"),
            "{error}"
        );
        assert_eq!(adapter.role(&event.payload), Role::Whole);
    }
    assert_eq!(destination.platform().seen().calls.len(), 0);
}

pub(crate) async fn a_wrong_token_is_retried_slowly_and_never_shown<D: Messenger>() {
    let (destination, adapter) = said::<D>().await;
    let event = event("s-1", 1, &text::<D>("a"));
    destination.platform().fault_once(Fault::Unauthorized);
    match deliver(&*adapter, &event).await {
        Verdict::Retry {
            error,
            after: Some(after),
        } => {
            assert!(error.contains("token is wrong"), "{error}");
            assert!(after >= Duration::from_secs(30));
        }
        verdict => panic!("{verdict:?}"),
    }
    for fault in [
        Fault::Broken,
        Fault::Forbidden,
        Fault::Unauthorized,
        Fault::Pause { seconds: 1 },
    ] {
        destination.platform().fault_once(fault);
        let verdict = format!("{:?}", deliver(&*adapter, &event).await);
        assert!(!verdict.contains(TOKEN), "{verdict}");
    }
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let adapter = build_with(&destination, &memory(), json!({"api_url": url}));
    let error = retry_error(deliver(&*adapter, &event).await);
    assert!(error.contains(&url) && !error.contains(TOKEN), "{error}");
}

pub(crate) async fn typing_is_shown_before_a_final_and_costs_no_delivery<D: Messenger + Watched>() {
    let (destination, _) = said::<D>().await;
    let settings = json!({"typing": true, "thread_from": "/thread"});
    let adapter = build_with(&destination, &memory(), settings);
    let payload = |text: &str, last: bool| {
        json!({"text": text, "chat": D::CHATS[0], "thread": "17", "message_key": text, "final": last}).to_string()
    };
    tell(&*adapter, &[payload("progress", false)]).await;
    assert_eq!(destination.platform().seen().count(Kind::Typing), 0);
    tell(&*adapter, &[payload("final", true)]).await;
    let kinds: Vec<_> = destination
        .platform()
        .seen()
        .calls
        .iter()
        .map(|call| call.kind)
        .collect();
    assert_eq!(kinds, [Kind::Send, Kind::Typing, Kind::Send]);
    destination.platform().fault_once(Fault::Broken);
    tell(&*adapter, &[payload("another", true)]).await;
    assert_eq!(
        destination.platform().seen().texts(),
        ["progress", "final", "another"]
    );
}
