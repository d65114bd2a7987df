//! The names of the semantic conventions.

use lanekeeper_telemetry::names::{self, key};
use opentelemetry_semantic_conventions::{attribute, metric};

#[test]
fn names_that_the_semantic_conventions_know_are_theirs() {
    let theirs = [
        (names::PROCESS_DURATION, metric::MESSAGING_PROCESS_DURATION),
        (names::HTTP_DURATION, metric::HTTP_SERVER_REQUEST_DURATION),
        (names::HTTP_ACTIVE, metric::HTTP_SERVER_ACTIVE_REQUESTS),
    ];
    for (ours, theirs) in theirs {
        assert_eq!(ours.name, theirs);
    }
    for (ours, theirs) in [
        (key::MESSAGING_SYSTEM, attribute::MESSAGING_SYSTEM),
        (key::OPERATION_NAME, attribute::MESSAGING_OPERATION_NAME),
        (key::OPERATION_TYPE, attribute::MESSAGING_OPERATION_TYPE),
        (key::DESTINATION, attribute::MESSAGING_DESTINATION_NAME),
        (
            key::CONSUMER_GROUP,
            attribute::MESSAGING_CONSUMER_GROUP_NAME,
        ),
        (key::MESSAGE_ID, attribute::MESSAGING_MESSAGE_ID),
        (
            key::CONVERSATION_ID,
            attribute::MESSAGING_MESSAGE_CONVERSATION_ID,
        ),
        (key::ERROR_TYPE, attribute::ERROR_TYPE),
        (key::HTTP_METHOD, attribute::HTTP_REQUEST_METHOD),
        (key::HTTP_ROUTE, attribute::HTTP_ROUTE),
        (key::HTTP_STATUS, attribute::HTTP_RESPONSE_STATUS_CODE),
        (key::SERVER_ADDRESS, attribute::SERVER_ADDRESS),
        (key::SERVER_PORT, attribute::SERVER_PORT),
        (key::BATCH_COUNT, attribute::MESSAGING_BATCH_MESSAGE_COUNT),
        (key::URL_SCHEME, attribute::URL_SCHEME),
    ] {
        assert_eq!(ours, theirs);
    }
    for instrument in names::INSTRUMENTS {
        let own = instrument.name.starts_with("lanekeeper.");
        assert!(
            own || theirs.iter().any(|(ours, _)| ours == instrument),
            "{instrument:?}"
        );
    }
}
