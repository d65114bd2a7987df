//! What every adapter promises, run against every adapter.
//!
//! `behaviour` holds the promises; each other module holds one destination that can be told how to
//! conduct itself, and what that adapter promises beyond the rest. A behaviour that a destination
//! cannot show (standard output refuses nothing) is missing from its list below, not skipped.

mod behaviour;
mod chat;
mod destination;
mod discord;
mod exec;
mod fake;
mod http_server;
mod redis_stream;
mod signature;
mod slack;
mod stdout;
mod telegram;
mod webhook;

/// The same for what only chats promise.
macro_rules! chats {
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
