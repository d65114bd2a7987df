//! The behaviours that every adapter must have, tested with every adapter.
//!
//! `behaviour` has the behaviours. Each other module has one destination that the tests control, and the behaviours
//! that only this adapter has. If a destination cannot show a behaviour (standard output refuses nothing), the
//! behaviour is missing from its list below, not skipped.

mod behaviour;
mod chat;
pub(crate) mod destination;
mod discord;
mod exec;
mod fake;
pub(crate) mod http_server;
mod redis_pubsub;
mod redis_stream;
mod signature;
mod slack;
mod stdout;
mod telegram;
mod webhook;
mod webhook_batch;

/// What every chat platform's bot promises: it has the same fake behind it but for the protocol.
macro_rules! chats {
    ($destination:ident) => {
        crate::conformance::conforms!($destination:
            passing_failure_is_retried,
            final_refusal_is_a_rejection,
            silence_ends_at_the_time_out_in_a_retry,
            dropped_delivery_leaves_nothing_running,
        );

        crate::conformance::chats!($destination:
            any_text_is_shown_as_it_is,
            a_long_text_is_several_messages_in_order,
            one_request_is_one_turn,
            later_versions_edit_the_message,
            a_successor_edits_what_it_did_not_send,
            keys_sessions_and_chats_have_their_own_messages,
            a_message_grows_and_shrinks_by_parts,
            a_retry_sends_only_the_parts_that_are_missing,
            without_its_memory_it_sends_nothing_and_nothing_twice,
            an_answer_that_cannot_be_read_has_nothing_sent_again,
            a_message_that_was_deleted_is_sent_anew,
            concurrent_messages_do_not_mix,
            a_pause_is_of_the_one_chat,
            what_has_no_text_or_place_is_refused_by_its_pointer,
            a_wrong_token_is_retried_slowly_and_never_shown,
            typing_is_shown_before_a_final_and_costs_no_delivery,
        );
    };
    ($destination:ident: $($behaviour:ident),+ $(,)?) => {
        mod chats {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $behaviour() {
                    let limit = std::time::Duration::from_secs(30);
                    let behaviour = crate::conformance::chat::$behaviour::<super::$destination>();
                    tokio::time::timeout(limit, behaviour).await.expect("the test hangs");
                }
            )+
        }
    };
}
pub(crate) use chats;

/// One test per behaviour, named `conformance::<adapter>::conforms::<behaviour>`.
macro_rules! conforms {
    ($destination:ident: $($behaviour:ident),+ $(,)?) => {
        mod conforms {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $behaviour() {
                    let limit = std::time::Duration::from_secs(30);
                    let behaviour =
                        crate::conformance::behaviour::$behaviour::<super::$destination>();
                    tokio::time::timeout(limit, behaviour).await.expect("the test hangs");
                }
            )+
        }
    };
}
pub(crate) use conforms;
