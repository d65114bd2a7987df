//! A platform that is away, slow, wrong or asked by another; a session that is locked; a source that cannot be asked.

use std::time::Duration;

use super::{Chat, LIMIT, SECRET};
use crate::command::run;
use crate::support::platform::Trouble;
use crate::support::wait_until;

#[tokio::test(flavor = "multi_thread")]
async fn whatever_the_platform_answers_no_message_is_lost_and_none_comes_twice() {
    let chat = Chat::new().await;
    let updates = &chat.telegram.updates;
    let worker = chat.worker().await;
    let mut expected = Vec::new();
    for (i, trouble) in [
        Trouble::Broken,
        Trouble::Truncated,
        Trouble::Nonsense,
        Trouble::Cut,
        Trouble::TooFast { seconds: 1 },
    ]
    .into_iter()
    .enumerate()
    {
        updates.trouble(trouble);
        updates.text(77, &i.to_string());
        expected.push(i.to_string());
        updates.confirmed(LIMIT).await;
        assert_eq!(chat.contents("tg-77-0").await, expected, "{trouble:?}");
    }
    // Twice in a row is a problem, until it is over.
    for _ in 0..2 {
        updates.trouble(Trouble::Broken);
    }
    updates.text(77, "last");
    chat.problem_is("telegram answered 502: Bad Gateway").await;
    updates.confirmed(LIMIT).await;
    wait_until(LIMIT, "it is over", async || chat.problem().await.is_none()).await;
    assert!(worker.logged("messages are fetched for a source again"));
    assert!(!worker.log().contains(SECRET));
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_that_come_for_ever_are_taken_once_and_asked_for_ever_more_slowly() {
    let chat = Chat::new().await;
    let updates = &chat.telegram.updates;
    updates.forget_nothing(true);
    updates.text(77, "once");
    let worker = chat.worker().await;
    chat.problem_is("nothing but updates that it was told to forget")
        .await;
    let asked = updates.asked();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(updates.asked() - asked <= 3, "{}", updates.asked() - asked);
    assert_eq!(chat.contents("tg-77-0").await, ["once"]);
    // Something new among them is taken.
    updates.text(77, "twice");
    updates.forget_nothing(false);
    updates.confirmed(LIMIT).await;
    assert_eq!(chat.contents("tg-77-0").await, ["once", "twice"]);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn another_program_that_asks_or_a_webhook_is_named_and_asked_against_slowly() {
    let chat = Chat::new().await;
    let updates = &chat.telegram.updates;
    let worker = chat.worker().await;
    wait_until(LIMIT, "it asks", async || updates.asked() > 0).await;
    // Once: it may have been a predecessor.
    updates.ask_as_another();
    updates.text(77, "after one conflict");
    updates.confirmed(LIMIT).await;
    assert_eq!((updates.conflicts(), chat.problem().await), (1, None));
    updates.set_webhook(true);
    chat.problem_is("or call deleteWebhook").await;
    let asked = updates.asked();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(updates.asked(), asked, "every 30 s");
    let url = [("DATABASE_URL", chat.plant.url.as_str())];
    let status = run(&["status"], &url, "").await.stdout;
    assert!(
        status.contains("source tg: another program asks"),
        "{status}"
    );
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_sources_with_one_token_the_second_is_refused_and_told_which_has_the_bot() {
    let chat = Chat::new().await;
    let updates = &chat.telegram.updates;
    let worker = chat.worker().await;
    wait_until(LIMIT, "it asks", async || updates.asked() > 0).await;
    let second = chat.section("second").replace("-{thread_id}", "");
    chat.apply(&(chat.section("tg") + &second)).await;
    wait_until(LIMIT, "it is refused", async || {
        worker.logged("source tg asks for the same bot")
    })
    .await;
    updates.text(77, "to the first");
    updates.confirmed(LIMIT).await;
    assert_eq!(chat.contents("tg-77-0").await, ["to the first"]);
    assert_eq!(chat.contents("second-77").await, [""; 0]);
    assert_eq!(updates.conflicts(), 0);
    let url = [("DATABASE_URL", chat.plant.url.as_str())];
    let status = run(&["status"], &url, "").await.stdout;
    assert!(status.contains("source second: source tg asks"), "{status}");
    // A removed source lets its bot go.
    let pruned = run(&["apply", "-f", "-", "--prune"], &url, &second).await;
    assert_eq!(pruned.code, Some(0), "{}", pruned.stderr);
    updates.text(77, "to the second");
    updates.confirmed(Duration::from_secs(60)).await;
    assert_eq!(chat.contents("second-77").await, ["to the second"]);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_the_token_leaves_the_source_to_one_that_has_it() {
    let chat = Chat::new().await;
    let poor = chat.worker_with(&[("TG_TOKEN", "")]).await;
    wait_until(LIMIT, "it says so", async || {
        poor.logged("what TG_TOKEN holds is no token")
    })
    .await;
    let wrong = chat
        .worker_with(&[("TG_TOKEN", "1:wrong-token-here")])
        .await;
    chat.problem_is("Telegram does not know the bot").await;
    let worker = chat.worker().await;
    chat.telegram.updates.text(77, "hello");
    chat.telegram.updates.confirmed(LIMIT).await;
    assert_eq!(chat.contents("tg-77-0").await, ["hello"]);
    assert!(!wrong.log().contains("wrong-token-here"));
    for one in [poor, wrong, worker] {
        assert!(one.stop().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producers_open_transaction_holds_up_its_session_and_no_other() {
    let chat = Chat::new().await;
    let updates = &chat.telegram.updates;
    updates.text(77, "one");
    let worker = chat.worker().await;
    updates.confirmed(LIMIT).await;
    let mut producer = crate::support::connect(&chat.plant.url).await;
    let open = producer.transaction().await.unwrap();
    open.execute(
        "SELECT lanekeeper.enqueue_inbound('tg-77-0', 'terminal', 'of the open transaction')",
        &[],
    )
    .await
    .unwrap();
    updates.text(77, "two");
    updates.text(-100, "elsewhere");
    updates.text(77, "three");
    wait_until(LIMIT, "the other session goes on", async || {
        chat.contents("tg--100-0").await == ["elsewhere"]
    })
    .await;
    assert_eq!(updates.kept(), 3, "nothing is confirmed beyond it");
    open.commit().await.unwrap();
    updates.confirmed(LIMIT).await;
    assert_eq!(
        chat.contents("tg-77-0").await,
        ["one", "of the open transaction", "two", "three"]
    );
    assert_eq!(chat.contents("tg--100-0").await, ["elsewhere"]);
    assert!(worker.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_does_not_name_the_source_keeps_its_messages_at_the_platform() {
    let chat = Chat::new().await;
    let updates = &chat.telegram.updates;
    let only = "SELECT lanekeeper.set_producers('inbound', ARRAY['token 1'])";
    chat.plant.client.execute(only, &[]).await.unwrap();
    updates.text(77, "wait for me");
    let worker = chat.worker().await;
    chat.problem_is("its messages wait").await;
    assert_eq!(
        (updates.kept(), chat.contents("tg-77-0").await.len()),
        (1, 0)
    );
    let too = "SELECT lanekeeper.set_producers('inbound', ARRAY['source tg'])";
    chat.plant.client.execute(too, &[]).await.unwrap();
    updates.confirmed(Duration::from_secs(60)).await;
    assert_eq!(chat.contents("tg-77-0").await, ["wait for me"]);
    assert!(worker.stop().await.success());
}
